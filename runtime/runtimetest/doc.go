// Package runtimetest is a conformance suite for implementations of
// [github.com/kubeletkit/kubeletkit/runtime.Runtime]. The runtimes of kubeletkit pass
// it: runtime/cri on containerd, runtime/process and runtime/fake.
//
//	func TestConformance(t *testing.T) {
//		runtimetest.Suite(t, runtimetest.Factory{New: func(t *testing.T) *runtimetest.Subject {
//			return &runtimetest.Subject{Runtime: myRuntime, Image: "busybox:1", Sleep: []string{"sleep", "1000"}, …}
//		}})
//	}
//
// # What it tests
//
//   - The life of a pod from the first sync to its removal.
//   - Repeated calls and unknown names, where the contract allows them.
//   - The order of init containers and sidecars at the start and at the end.
//   - Exit codes, restart policies and back-off.
//   - Grace periods, also shortened ones and 0.
//   - Replacement of one changed container while the others keep running.
//   - Lists and events.
//   - Logs in CRI's format, environment variables, commands.
//   - The functions of a [runtime.PodSync]: EditSandbox, EditContainer, EnsureImage,
//     SandboxReady and Objects (env and envFrom with secrets and config maps).
//   - Restarts of containers whose probes fail, and starts that wait for a startup probe.
//   - Lifecycle hooks: postStart and preStop, with the actions exec and sleep.
//   - The end of the context in every method. The error wraps ctx.Err(), and not only the
//     context's cause.
//   - Calls with a status that is older than an exit or a removal.
//   - Many pods at the same time.
//   - A restart of the runtime: afterwards it reports what happened in between.
//
// # What it does not test
//
// Mounts and devices of edits, isolation, resources, security, networks and volumes differ between runtimes. If a
// runtime does not have a feature such as logs, its [Subject] leaves the field nil, and
// the tests of the feature are skipped with a message. go test -v lists them.
//
// # Time
//
// The suite polls, which needs nothing of the runtime. Some tests wait for real exits
// and grace periods; the whole takes less than a minute with containers, and
// milliseconds in virtual time. Upper bounds of time are those of the contract, or
// [Factory].Timeout, so that a runtime that hangs fails a test with a message.
//
// The suite uses pods of its own in the namespace "runtimetest", and removes them. It may
// run on a runtime that is in use.
package runtimetest
