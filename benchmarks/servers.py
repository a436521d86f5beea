"""What answers requests of several clients that call at the same time, by each backend.

A client is a thread that sends its next request when it has the result of the last one.
"""

import multiprocessing
import os
import tempfile
import threading
import time
from functools import partial

import torch

from benchmarks import backends, exported

EACH, PROCESSES = "poptorch, executor each", "poptorch, process each"
# Calls of one executor wait for each other, and OpenVINO divides its threads among requests: these
# use all cores for all clients. With the others, each client has its share of the cores.
ALL_CORES = (backends.OURS, "openvino")
WARM_CALLS = 3


def requests(call, seconds):
    """Sends requests for some time; returns the latency of each in ms."""
    found, end = [], time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        call()
        found.append((time.perf_counter() - begin) * 1e3)
    return found


def figures(latencies):
    """Percentiles in ms and requests per second, from the latencies of each client."""
    ordered = sorted(latency for client in latencies for latency in client)
    at = {f"p{n}": ordered[(len(ordered) - 1) * n // 100] for n in (50, 90, 99)}
    return at | {"rate": sum(1e3 * len(client) / sum(client) for client in latencies)}


class Threads:
    """Clients that are threads of this process, with a function each."""

    def __init__(self, calls):
        self.calls = calls
        for call in calls:
            for _ in range(WARM_CALLS):
                call()

    def measure(self, seconds):
        """The latencies of each client."""
        found, failed, barrier = [], [], threading.Barrier(len(self.calls))

        def client(call):
            try:
                barrier.wait()
                found.append(requests(call, seconds))
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=client, args=(call,)) for call in self.calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        return found

    def close(self):
        """Nothing has to end."""


def answer(path, inputs, threads, pipe):
    """A process of :class:`Processes`."""
    import poptorch  # here, so that the other backends' processes do not hold it

    torch.set_num_threads(threads)
    model = poptorch.load(path)
    call = partial(model, *map(torch.from_numpy, inputs))
    for _ in range(WARM_CALLS):
        call()
    pipe.send(None)
    while (seconds := pipe.recv()) is not None:
        pipe.send(requests(call, seconds))


class Processes:
    """Clients that are processes, which load the same file."""

    def __init__(self, path, inputs, clients):
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for _ in range(clients):
            pipe, far_end = context.Pipe()
            given = (path, [x.numpy() for x in inputs], torch.get_num_threads(), far_end)
            self.processes.append(context.Process(target=answer, args=given, daemon=True))
            self.processes[-1].start()
            far_end.close()  # so that the end of the process is noticed
            self.pipes.append(pipe)
        for pipe in self.pipes:
            pipe.recv()

    def measure(self, seconds):
        """The latencies of each client."""
        for pipe in self.pipes:
            pipe.send(seconds)
        return [pipe.recv() for pipe in self.pipes]

    def close(self):
        """Ends the processes."""
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join()


class Server:
    """The network of a setting, for any number of clients."""

    def __init__(self, setting):
        self.setting = setting
        self.job = backends.make_job(setting)
        self.cores = torch.get_num_threads()
        self.folder = tempfile.TemporaryDirectory()
        self.path = ""  # of the exported model
        self.clients = {}  # by way

    def block(self, way, clients, seconds):
        """Figures of requests for some time.

        Args:
            way: the backend, or one of ``EACH`` and ``PROCESSES``.
            clients: how many call at the same time.
            seconds: how long.
        """
        threads = self.cores if way in ALL_CORES else max(1, self.cores // clients)
        torch.set_num_threads(threads)
        if way not in self.clients:
            self.clients[way] = self._make(way, clients)
        return figures(self.clients[way].measure(seconds))

    def close_clients(self):
        """The next block may have another number of clients."""
        for clients in self.clients.values():
            clients.close()
        self.clients.clear()

    def close(self):
        """Ends the clients and removes the files."""
        self.close_clients()
        self.folder.cleanup()

    def _make(self, way, clients):
        inputs = self.job.inputs[:1]
        if way in (EACH, PROCESSES):
            path = self._exported(self._save)
        if way == PROCESSES:
            return Processes(path, inputs, clients)
        if way == EACH:
            import poptorch  # here, so that the other backends' processes do not hold it

            return Threads([partial(poptorch.load(path), *inputs) for _ in range(clients)])
        if way == "onnxruntime":
            return Threads([self._onnxruntime()] * clients)
        if way == "openvino":
            return Threads(self._openvino(clients))
        return Threads([backends.find(way).make(self.job).call] * clients)

    def _exported(self, export):
        self.path = self.path or export()
        return self.path

    def _save(self):
        import poptorch  # here, so that the other backends' processes do not hold it

        options = poptorch.Options().showCompilationProgressBar(False)
        model = poptorch.inferenceModel(self.job.module, options)
        path = os.path.join(self.folder.name, "net.poptorch")
        return model.compileAndExport(path, *self.job.inputs[:1])

    def _onnxruntime(self):
        path = self._exported(partial(exported.export, self.job, self.folder.name))
        session = exported.session_of(path)
        feed = {session.get_inputs()[0].name: self.job.inputs[0].numpy()}
        return exported.checked(self.job, lambda: session.run(None, feed)[0])

    def _openvino(self, clients):
        path = self._exported(partial(exported.export, self.job, self.folder.name))
        compiled = exported.compiled_of(path, "LATENCY" if clients == 1 else "THROUGHPUT")
        array = self.job.inputs[0].numpy()

        def infer(request):
            return request.infer([array], share_inputs=True, share_outputs=True)[0]

        calls = [partial(infer, compiled.create_infer_request()) for _ in range(clients)]
        exported.checked(self.job, calls[0])
        return calls
