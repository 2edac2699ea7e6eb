"""What users build programs of. Each layer appends ops to the default main program."""

from .control_flow import *  # noqa: F403
from .io import *  # noqa: F403
from .learning_rate_scheduler import *  # noqa: F403
from .metric_op import *  # noqa: F403
from .nn import *  # noqa: F403
from .ops import *  # noqa: F403
from .tensor import *  # noqa: F403
