package testenv

import (
	"flag"
	"strconv"
)

// Parallel raises the maximum number of tests that run at the same time to least, for tests that wait
// most of the time. The default is the number of processors. It is called by TestMain, after
// [flag.Parse], and changes the flag -test.parallel only. In a program without the flag it does nothing.
func Parallel(least int) { parallel(flag.CommandLine, least) }

func parallel(flags *flag.FlagSet, least int) {
	f := flags.Lookup("test.parallel")
	if f == nil {
		return
	}
	if now, err := strconv.Atoi(f.Value.String()); err == nil && now < least {
		_ = f.Value.Set(strconv.Itoa(least)) // a number is accepted
	}
}
