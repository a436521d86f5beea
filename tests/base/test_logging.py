"""Log levels."""

import logging
import os
import subprocess
import sys

import pytest

import poptorch


@pytest.fixture(autouse=True)
def _keep_level():
    level = poptorch.logger.level
    yield
    poptorch.logger.setLevel(level)


@pytest.mark.parametrize(("level", "number"), [
    ("DEBUG", logging.DEBUG), ("WARN", logging.WARNING), (2, logging.INFO), (4, logging.ERROR)])
def test_levels(level, number):
    poptorch.setLogLevel(level)
    assert poptorch.logger.level == number


def test_off_shows_nothing(capsys):
    poptorch.setLogLevel("OFF")
    poptorch.logger.critical("x")
    assert capsys.readouterr() == ("", "")
    poptorch.setLogLevel("INFO")
    poptorch.logger.info("hello")
    assert "[INFO] hello" in capsys.readouterr().err


@pytest.mark.parametrize(("level", "words"), [
    (9, "Invalid log level integer"), ([], r"Unknown log level: \[\]\. Valid values are"),
    (None, "Unknown log level: None"), (b"WARN", "Unknown log level: b'WARN'"),
    ("LOUD", "Unknown log level: LOUD. Valid values are DEBUG, ERR, INFO, OFF, TRACE and WARN")])
def test_unknown_level(level, words):
    with pytest.raises(ValueError, match=words):
        poptorch.setLogLevel(level)


@pytest.mark.sampled
def test_environment_and_the_line_about_the_device():
    program = ("import torch, poptorch\n"
               "for _ in range(2): poptorch.inferenceModel(torch.nn.ReLU())(torch.ones(2))")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                         env={**os.environ, "POPTORCH_LOG_LEVEL": "INFO"}, check=True)
    assert ran.stderr.count("running on the IPU Model") == 1


def _import_with(level):
    env = {**os.environ, "POPTORCH_LOG_LEVEL": level}
    program = "import poptorch; poptorch.logger.error('shown'); poptorch.logger.info('detail')"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=env)


@pytest.mark.sampled
@pytest.mark.parametrize(("level", "lines"), [("OFF", 0), ("4", 1), ("INFO", 2), ("", 1)])
def test_level_of_the_environment(level, lines):
    assert _import_with(level).stderr.count("[poptorch]") == lines


@pytest.mark.sampled
def test_bad_level_of_the_environment():
    assert "[POPTORCH_LOG_LEVEL] Unknown log level: LOUD" in _import_with("LOUD").stderr
    assert "[POPTORCH_LOG_LEVEL] Invalid log level integer 7" in _import_with("7").stderr


def test_logger_is_a_standard_one():
    assert poptorch.logger is logging.getLogger("poptorch::python")


def test_repeated_lines_are_counted_for_each_level(capsys):
    poptorch.setLogLevel("INFO")
    for _ in range(6):
        poptorch.logger.warning("one line of test_repeated_lines")
        poptorch.logger.info("one line of test_repeated_lines")
    assert capsys.readouterr().err.count("one line of test_repeated_lines") == 8
