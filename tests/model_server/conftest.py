from tests.one_certificate import one_certificate

__all__ = ["one_certificate"]
