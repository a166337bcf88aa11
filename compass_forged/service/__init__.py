"""The service: one forge call as one account.

``steps`` has their order, which is the contract; ``creates``, ``writes``, ``reads`` and ``subscriptions`` have what
lies behind it.
"""

from compass_forged.service.bound import ServiceLimits
from compass_forged.service.steps import ForgeService

__all__ = ["ForgeService", "ServiceLimits"]
