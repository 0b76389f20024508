"""Every hot delete passes here: the primitives, sweeps and their pace, applied plans, holds and gates."""
