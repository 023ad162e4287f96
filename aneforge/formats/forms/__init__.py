"""Forms that every frontend needs: operations of models that the graph lacks, built from ops that it has.

This is the only place that builds ops of the graph for a format.
"""

from __future__ import annotations

from aneforge.formats.forms.attention import *
from aneforge.formats.forms.indexing import *
from aneforge.formats.forms.movement import *
from aneforge.formats.forms.norms import *
from aneforge.formats.forms.numbers import *
from aneforge.formats.forms.pointwise import *
from aneforge.formats.forms.products import *
from aneforge.formats.forms.recurrent import *
from aneforge.formats.forms.reductions import *
from aneforge.formats.forms.resampling import *
from aneforge.formats.forms.spatial import *
