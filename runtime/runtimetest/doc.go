// Package runtimetest is the suite that says what a runtime is: every
// implementation of [github.com/kubeletkit/kubeletkit/runtime.Runtime] passes it.
//
//	func TestConformance(t *testing.T) {
//		runtimetest.Suite(t, runtimetest.Factory{New: func(t *testing.T) *runtimetest.Subject {
//			return &runtimetest.Subject{Runtime: myRuntime, Image: "busybox:1", Sleep: []string{"sleep", "1000"}, …}
//		}})
//	}
//
// # What it asks
//
// The life of a pod from its first sync to its removal; that everything that may be
// asked twice may; that unknown names are no error where the contract says so; the
// order of init containers and sidecars at both ends; exit codes, restart policies and
// back-off; grace periods, shortened ones and none; that one changed container is
// replaced alone; list filters; logs in CRI's format; commands; that every method
// returns soon after its context ends, with its error; many pods at once; and
// that a runtime which is restarted knows what happened while it was away.
//
// # What it does not
//
// Isolation, resources, security, networks and volumes are different from one
// runtime to the next and are the business of its own tests. What a runtime has not
// got, such as logs, its [Subject] leaves nil: those tests are skipped and say so.
//
// The suite looks at its own pods only, in namespace "runtimetest", removes them,
// and may run against a runtime that others use. It polls, since that needs nothing
// of the runtime; under virtual time it takes milliseconds.
package runtimetest
