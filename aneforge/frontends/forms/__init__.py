"""Forms that every frontend needs: operations of models that the graph lacks, built from ops that it has.

This is the only place that builds ops of the graph for a format. Each module lists what it offers.
"""

from __future__ import annotations

from aneforge.frontends.forms.activations import *
from aneforge.frontends.forms.arithmetic import *
from aneforge.frontends.forms.attention import *
from aneforge.frontends.forms.indexing import *
from aneforge.frontends.forms.movement import *
from aneforge.frontends.forms.norms import *
from aneforge.frontends.forms.numbers import *
from aneforge.frontends.forms.pointwise import *
from aneforge.frontends.forms.products import *
from aneforge.frontends.forms.quantised import *
from aneforge.frontends.forms.recurrent import *
from aneforge.frontends.forms.reductions import *
from aneforge.frontends.forms.resampling import *
from aneforge.frontends.forms.signal import *
from aneforge.frontends.forms.sorting import *
from aneforge.frontends.forms.spatial import *
