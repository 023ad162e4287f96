"""A large model as programs that load: where it can be cut, what each program may hold, what a token then costs."""
