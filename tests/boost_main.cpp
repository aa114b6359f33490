// The module of Boost.Test and its main, for every test program.
#define BOOST_TEST_MODULE chorale
#include <boost/test/unit_test.hpp>
