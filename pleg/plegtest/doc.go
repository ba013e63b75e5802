// Package plegtest has the conformance suite of [pleg.Generator], and the scripted
// container runtime that it uses.
//
//	func TestConformance(t *testing.T) {
//		plegtest.Suite(t, plegtest.Factory{New: func(t *testing.T, rt *plegtest.Runtime, cache *runtime.Cache) pleg.Generator {
//			return mypleg.New(rt, cache)
//		}})
//	}
//
// # What the suite tests
//
//   - Every change is reported at least once, and each end and each removal once only.
//   - When the reader receives the events of a pod, the cache holds a status that was
//     read after they happened, or none if the pod is gone.
//   - A slow reader loses nothing, and receives one item for each pod.
//   - Failed lists, failed inspections and hung inspections lose nothing, and a hung
//     inspection delays no other pod.
//   - Healthy reports the progress of the generator and has no side effects.
//   - A second Run returns [runtime.ErrAlreadyRunning]. Run returns nil when its context
//     ends, whatever is under way, and then the channel is closed.
//   - After Relist, a change is reported soon, also if the event stream is silent. Changes
//     of a held pod are reported soon after Release. The methods of [pleg.Base] pass if
//     the generator finds each change soon by itself.
//
// Each test runs in virtual time, see [testing/synctest], so a generator must not start
// goroutines outside of Run or leave any behind.
//
// # The runtime
//
// [Runtime] holds the pods that a test gives it. Its calls can fail, hang and take time,
// and its event stream can lose, delay and repeat hints. It is of use in the tests of
// other generators and of caches, too.
package plegtest
