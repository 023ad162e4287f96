"""Type rules: the type of an op's result from the types of its operands and its attributes.

A rule takes the op and the type of each operand, as the rules of :mod:`aneforge.engine.interpret` take arrays, and
gives the type that the result must have. It raises :class:`~aneforge.engine.tensor_type.AnecError` where operands and
attributes do not fit together. The verifier compares the answer with the type that the op declares.
"""
