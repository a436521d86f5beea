"""Switches for tests and debugging, a comparison with PyTorch, and budgets."""

from poptorch._base.switches import gradients as gradients
from poptorch._base.switches import is_wide as is_wide
from poptorch._base.switches import keep_gradients as keep_gradients
from poptorch._base.switches import keeps_gradients as keeps_gradients
from poptorch._base.switches import stage_costs as stage_costs
from poptorch._base.switches import wide as wide
from poptorch.testing._budget import assert_budget as assert_budget
from poptorch.testing._compare import compare as compare
from poptorch.testing._comparison import Comparison as Comparison
from poptorch.testing._comparison import Difference as Difference
