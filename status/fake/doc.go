// Package fake has fakes for tests of code that uses package status: a [Sink] that records its
// deliveries and fails on request, and a [Manager] that records the statuses that a component
// sets.
//
//	sink := fake.NewSink()
//	sink.Fail(3, errors.New("conflict"))
//	m, err := status.New(status.Options{Sink: sink})
//	… // m.Run, m.Set
//	s, err := sink.UntilPhase(ctx, uid, v1.PodRunning)
package fake
