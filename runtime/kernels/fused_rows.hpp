// What kernels of fused rows are composed of: the engines of rows, and functors whose text is written at run time.
#pragma once

#include "row_columns.hpp"
#include "row_composed.hpp"
#include "row_kernels.hpp"
