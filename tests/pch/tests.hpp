// What every test program reads first, precompiled for sanitizer builds: see src/pch/standard.hpp.
#pragma once

#include "../../src/pch/standard.hpp"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <fstream>
#include <iostream>
