// Package agenttest runs a whole agent in virtual time, for tests of what is beside it: a source, a sink, a
// component, a controller. The runtime is in memory, and an hour takes some milliseconds.
//
//	func TestACrashLoop(t *testing.T) {
//		agenttest.Run(t, agenttest.Options{}, func(t *testing.T, n *agenttest.Node) {
//			n.Runtime.Script(fake.Target{Pod: "pod-0"}, fake.Exits(time.Second, 1))
//			n.Source.Set(fake.Pods(1, 1)...)
//			n.Sleep(time.Hour)
//			...
//		})
//	}
//
// # Vocabulary
//
//   - A node ([Node]) is an agent with what surrounds it: a source that the test sets, a runtime whose containers
//     it scripts, and a sink that keeps the statuses.
//   - A bubble is what [testing/synctest] calls the goroutines of a test for which time is virtual. Time moves on when
//     all of them wait.
//
// # Guarantees
//
//   - The agent runs before the test function begins. When the function returns, also by t.FailNow, the agent is
//     stopped and waited for. An error of [kubeletkit.Agent.Run] fails the test.
//   - The log of the agent is that of the test, so it is shown if the test fails.
//   - Nothing is kept: the root directory is that of the test.
//
// docs/embed/test.md has what a bubble cannot have, such as sockets and watched files.
package agenttest
