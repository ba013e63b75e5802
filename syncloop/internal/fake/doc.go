// Package fake has a [Handler], a syncloop.Handler that records its calls, for tests of code
// that calls one.
//
//	handler, config := fake.NewHandler(), podconfigfake.NewConfig()
//	loop, err := syncloop.New(syncloop.Deps{Handler: handler, Config: config, …}, syncloop.Options{})
//	err = config.Push(ctx, podconfig.Change{Op: podconfig.Add, Pods: []*v1.Pod{web}})
//	call, err := handler.UntilCalled(ctx, fake.HandlePodAdditions, web.UID)
//
// The fakes of the other parts are in their packages: podconfig/fake has the stream of
// changes, podworkers/fake the workers, status/fake the statuses, pleg/fake the events of
// the runtime, prober/fake the results of probes, volume/fake the volumes, runtime/fake the
// runtime. podmanager.Store, which holds the desired pods in memory, needs no fake.
package fake
