"""x"""


def add(c):
    pass
