// The one translation unit of each test program that defines the Boost.Test module and its main.
#define BOOST_TEST_MODULE chorale
#include <boost/test/unit_test.hpp>
