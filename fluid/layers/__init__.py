"""What users build programs of. Each layer appends ops to the default main program."""

from .arguments import check_layers
from .control_flow import *  # noqa: F403
from .debug import *  # noqa: F403
from .detection import *  # noqa: F403
from .distributions import *  # noqa: F403
from .dynamic_rnn import *  # noqa: F403
from .io import *  # noqa: F403
from .layer_function_generator import *  # noqa: F403
from .learning_rate_scheduler import *  # noqa: F403
from .loss import *  # noqa: F403
from .metric_op import *  # noqa: F403
from .nms import *  # noqa: F403
from .nn import *  # noqa: F403
from .ops import *  # noqa: F403
from .proposals import *  # noqa: F403
from .recommendation import *  # noqa: F403
from .rnn import *  # noqa: F403
from .sequence import *  # noqa: F403
from .structured import *  # noqa: F403
from .tensor import *  # noqa: F403
from .vision import *  # noqa: F403

check_layers(globals())
del check_layers
