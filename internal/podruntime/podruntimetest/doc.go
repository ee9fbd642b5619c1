// Package podruntimetest holds the suite that each runtime of pods must pass,
// and Fake, a runtime in memory for the tests of those who use one. Fake passes
// the suite too.
package podruntimetest
