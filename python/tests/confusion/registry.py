"""The list of planted faults. Each is a class whose methods get one step of attention wrong."""

FAULTS = []


def plants(slug, form="", **want):
    """Registers a class under its name in the catalogue. `want`: what a drawn meaning needs for it to apply."""
    def register(cls):
        cls.slug, cls.form, cls.want = slug, form, want
        FAULTS.append(cls)
        return cls

    return register


class Planted:
    """Mixed into Attention. `prepare` may change the drawn meaning and choose the fault's own numbers."""

    @classmethod
    def prepare(cls, rng, m):
        return m, {}
