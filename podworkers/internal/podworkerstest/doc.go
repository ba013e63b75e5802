// Package podworkerstest has the conformance suite of [podworkers.Workers].
//
//	func TestConformance(t *testing.T) {
//		podworkerstest.Suite(t, podworkerstest.Factory{
//			New: func(t *testing.T, syncer podworkers.Syncer, cache runtime.StatusCache) podworkers.Workers {
//				return mine.New(syncer, cache)
//			},
//		})
//	}
//
// # What the suite tests
//
//   - At most one call for a UID is under way, and the phase of an incarnation never
//     goes back. SyncPod gets Create in the first call of an incarnation only.
//   - Each call gets a status that was read after the last call that changed something.
//   - A failed call, a panic and a status that cannot be read are repeated. A call that
//     hangs delays no other pod.
//   - A kill is never lost, undone or delayed by a SyncPod. The grace period only
//     shrinks; a shorter one cancels the call under way. Each Done is called once.
//   - A pod ends when it is deleted, evicted, undesired, in a final phase, when it has
//     ended by itself, and when it has failed for good.
//   - Incarnations of one UID, static pods of one full name, and a pod and the orphan of
//     its UID follow one another.
//   - SyncKnownPods forgets finished pods and ends pods that are not desired.
//   - UpdatePod never blocks. Run returns nil when its context has ended and no call is
//     under way. A second Run returns [runtime.ErrAlreadyRunning].
//   - TerminatingByFullName finds the static pods that are to end, and Predecessor the one
//     that another of its full name waits for.
//
// Each test runs in virtual time, see [testing/synctest], so workers must not start
// goroutines outside of Run or leave any behind.
package podworkerstest
