package fake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// listener reads events, each noted as its ID and its kind, as in "c2 stopped".
type listener struct {
	criv1.RuntimeService_GetContainerEventsClient
	t *testing.T
}

func listen(ctx context.Context, t *testing.T, c criv1.RuntimeServiceClient) *listener {
	t.Helper()
	stream, err := c.GetContainerEvents(ctx, &criv1.GetEventsRequest{})
	require.NoError(t, err)
	return &listener{stream, t}
}

// take reads n events.
func (l *listener) take(n int) []string {
	l.t.Helper()
	var got []string
	for range n {
		ev, err := l.Recv()
		require.NoError(l.t, err)
		got = append(got, noteOf(ev))
	}
	return got
}

// rest reads until the stream ends.
func (l *listener) rest() ([]string, error) {
	var got []string
	for {
		ev, err := l.Recv()
		if err != nil {
			return got, err
		}
		got = append(got, noteOf(ev))
	}
}

func noteOf(ev *criv1.ContainerEventResponse) string {
	kind := []string{"created", "started", "stopped", "deleted"}[ev.ContainerEventType]
	if ev.PodSandboxStatus == nil {
		kind += " bare"
	}
	return ev.ContainerId + " " + kind
}

func TestEventFaults(t *testing.T) {
	stopped := criv1.ContainerEventType_CONTAINER_STOPPED_EVENT
	main := fake.Target{Container: "main"}
	for name, tc := range map[string]struct {
		faults []fake.EventFault
		want   []string
	}{
		"none": {nil,
			[]string{"s1 created", "s1 started", "c2 created", "c2 started", "c2 stopped", "s1 stopped",
				"c2 deleted", "s1 deleted"}},
		"a lost one": {[]fake.EventFault{{Kind: &stopped, Target: main, Lose: true}},
			[]string{"s1 created", "s1 started", "c2 created", "c2 started", "s1 stopped", "c2 deleted", "s1 deleted"}},
		"a silent stream": {[]fake.EventFault{{Lose: true}}, nil},
		"doubled": {[]fake.EventFault{{Copies: 1, Skip: 2, Times: 2}},
			[]string{"s1 created", "s1 started", "c2 created", "c2 created", "c2 started", "c2 started", "c2 stopped",
				"s1 stopped", "c2 deleted", "s1 deleted"}},
		"late": {[]fake.EventFault{{Target: main, Times: 1, Delay: time.Minute}},
			[]string{"s1 created", "s1 started", "c2 started", "c2 stopped", "s1 stopped", "c2 created",
				"c2 deleted", "s1 deleted"}},
		"overtaken": {[]fake.EventFault{{Kind: &stopped, Target: main, Behind: 2}, {Times: 1, Behind: 1}},
			[]string{"s1 started", "s1 created", "c2 created", "c2 started", "s1 stopped", "c2 deleted",
				"c2 stopped", "s1 deleted"}},
		"overtaken for ever": {[]fake.EventFault{{Kind: &stopped, Behind: 10}},
			[]string{"s1 created", "s1 started", "c2 created", "c2 started", "c2 deleted", "s1 deleted"}},
		"late and doubled": {[]fake.EventFault{{Target: main, Kind: &stopped, Delay: time.Minute}, {Kind: &stopped, Target: main, Copies: 1, Delay: time.Second}},
			[]string{"s1 created", "s1 started", "c2 created", "c2 started", "s1 stopped", "c2 stopped", "c2 stopped",
				"c2 deleted", "s1 deleted"}},
		"without statuses": {[]fake.EventFault{{Target: main, Bare: true}},
			[]string{"s1 created", "s1 started", "c2 created bare", "c2 started bare", "c2 stopped bare", "s1 stopped",
				"c2 deleted bare", "s1 deleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, rt *fake.Runtime) {
				client, _ := rt.Clients()
				stream := listen(t.Context(), t, client)
				for _, f := range tc.faults {
					defer rt.InjectEvents(f)()
				}
				pod := makePod("web", "main")
				mustSync(t, rt, pod)
				require.NoError(t, kill(t.Context(), rt, pod))
				time.Sleep(2 * time.Minute)
				require.NoError(t, rt.RemoveSandbox(t.Context(), "s1"))
				rt.Stop()
				got, err := stream.rest()
				assert.Equal(t, codes.Unavailable, status.Code(err), "the stream breaks when the runtime stops")
				assert.Equal(t, tc.want, got)
			})
		})
	}
}

func TestEventsOfTheTimeBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{Events: fake.EventStream{Keep: 5 * time.Minute}})
		pods := fake.Pods(2, 1)
		require.NoError(t, rt.Seed(pods[0]))
		time.Sleep(4 * time.Minute)
		rt.Exit(fake.Target{}, 1)
		time.Sleep(2 * time.Minute)
		client, _ := rt.Clients()
		ctx, leave := context.WithCancel(t.Context())
		stream := listen(ctx, t, client)
		require.NoError(t, rt.Seed(pods[1]))
		assert.Equal(t, []string{"c2 stopped", "s3 created", "s3 started", "c4 created", "c4 started"}, stream.take(5),
			"what is older is gone")
		leave()
		synctest.Wait()
		n, _ := rt.Listeners()
		assert.Zero(t, n, "who goes is forgotten, though it has not read on")

		rt.Exit(fake.Target{}, 1)
		stream = listen(t.Context(), t, client)
		assert.Equal(t, []string{"c4 stopped"}, stream.take(1), "once")
		assert.Equal(t, 1, rt.BreakEvents(runtime.ErrUnavailable))
		rt.KillSandbox(fake.Target{Pod: "pod-0"})
		rt.Restart(fake.Keep)
		rt.KillSandbox(fake.Target{Pod: "pod-1"})
		stream = listen(t.Context(), t, client)
		assert.Equal(t, []string{"s3 stopped"}, stream.take(1), "a runtime that was restarted has not kept any")
	})
}

func TestASlowListenerHoldsUpTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Options{Dir: t.TempDir(), Events: fake.EventStream{Buffer: 3}})
		client, _ := rt.Clients()
		ctx, leave := context.WithCancel(t.Context())
		stream := listen(ctx, t, client)
		done := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := rt.Sync(t.Context(), makePod("web", "main"))
			done <- err
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		_, behind := rt.Listeners()
		assert.Equal(t, 4, behind, "the start has sent its event, and waits")
		assert.Len(t, rt.Running(fake.Target{}), 1)
		assert.Equal(t, 1, rt.Exit(fake.Target{}, 1), "an exit does not wait")
		stream.take(1)
		synctest.Wait()
		assert.Empty(t, done, "there are four again")
		stream.take(1)
		require.NoError(t, <-done)
		assert.Equal(t, time.Minute, time.Since(began))

		require.NoError(t, rt.Seed(fake.Pods(2, 1)...))
		calls, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := client.RemovePodSandbox(calls, &criv1.RemovePodSandboxRequest{PodSandboxId: "s1"})
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		leave()
		_, err = client.RemovePodSandbox(t.Context(), &criv1.RemovePodSandboxRequest{PodSandboxId: "s1"})
		require.NoError(t, err, "a listener that has left delays no call")
	})
}

func TestWhenAStreamIsKnownToStand(t *testing.T) {
	headerAfter := func(t *testing.T, rt *fake.Runtime) (time.Duration, bool) {
		client, _ := rt.Clients()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		stream := listen(ctx, t, client)
		began := time.Now()
		md, err := stream.Header()
		require.NoError(t, err)
		return time.Since(began), md != nil
	}
	for name, tc := range map[string]struct {
		events fake.EventStream
		fault  *fake.Fault
		after  time.Duration
		stands bool
	}{
		"at once":             {stands: true},
		"with the first":      {events: fake.Containerd(), after: time.Minute, stands: true},
		"after a delay":       {fault: &fake.Fault{Delay: time.Second}, after: time.Second, stands: true},
		"after it has failed": {fault: &fake.Fault{Delay: time.Second, Err: errors.New("no")}, after: time.Second},
		"never":               {fault: &fake.Fault{Hang: true}, after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := fake.New(fake.Options{Events: tc.events})
				if tc.fault != nil {
					tc.fault.Call = "GetContainerEvents"
					rt.Inject(*tc.fault)
				}
				go func() { time.Sleep(time.Minute); assert.NoError(t, rt.Seed(fake.Pods(1, 1)...)) }()
				after, stands := headerAfter(t, rt)
				assert.Equal(t, tc.after, after)
				assert.Equal(t, tc.stands, stands)
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestNoEventIsLostOnTheWayToTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, rt *fake.Runtime) {
		rt.Inject(fake.Fault{Call: "GetContainerEvents", Delay: time.Minute})
		client, _ := rt.Clients()
		stream := listen(t.Context(), t, client)
		require.NoError(t, rt.Seed(fake.Pods(1, 1)...))
		assert.Len(t, stream.take(4), 4)
		call, err := rt.UntilCalled(t.Context(), "GetContainerEvents", fake.Target{})
		require.NoError(t, err)
		assert.Equal(t, time.Minute, call.Ended.Sub(call.Began))
	})
}

func TestEventsOverTheWire(t *testing.T) {
	f := fake.New(fake.Options{Events: fake.EventStream{Keep: time.Hour}})
	require.NoError(t, f.Seed(fake.Pods(1, 1)...))
	client := criv1.NewRuntimeServiceClient(serve(t, f))
	stream := listen(t.Context(), t, client)
	_, err := stream.Header()
	require.NoError(t, err)
	assert.Equal(t, []string{"s1 created", "s1 started", "c2 created", "c2 started"}, stream.take(4))
	require.NoError(t, f.UntilEventsRead(t.Context()))
	f.BreakEvents(runtime.ErrUnavailable)
	_, err = stream.rest()
	assert.Equal(t, codes.Unavailable, status.Code(err))

	remove := f.Inject(fake.Fault{Call: "GetContainerEvents", Err: errors.New("not today")})
	_, err = listen(t.Context(), t, client).Recv()
	require.ErrorContains(t, err, "not today")
	remove()

	f.Stop()
	_, err = listen(t.Context(), t, client).Recv()
	assert.Equal(t, codes.Unavailable, status.Code(err))
}

func TestAListenerTooFarBehindGetsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, rt *fake.Runtime) {
		client, _ := rt.Clients()
		stream := listen(t.Context(), t, client)
		require.NoError(t, rt.Seed(fake.Pods(2600, 1)...))
		_, err := stream.rest()
		assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	})
}

func TestCallsThatARuntimeDoesNotHave(t *testing.T) {
	rt := fake.New(fake.Options{Without: append(fake.ListStreams(), "GetContainerEvents", "ContainerStats"),
		Images: []string{"image:1"}})
	overTheWire := criv1.NewRuntimeServiceClient(serve(t, rt))
	inMemory, images := rt.Clients()
	for name, client := range map[string]criv1.RuntimeServiceClient{"in memory": inMemory,
		"over the wire": overTheWire} {
		t.Run(name, func(t *testing.T) {
			_, err := listen(t.Context(), t, client).Recv()
			assert.Equal(t, codes.Unimplemented, status.Code(err))
			_, err = client.ContainerStats(t.Context(), &criv1.ContainerStatsRequest{})
			assert.Equal(t, codes.Unimplemented, status.Code(err))
			stream, err := client.StreamContainers(t.Context(), &criv1.StreamContainersRequest{})
			require.NoError(t, err)
			_, err = stream.Recv()
			assert.Equal(t, codes.Unimplemented, status.Code(err))
		})
	}
	stream, err := images.StreamImages(t.Context(), &criv1.StreamImagesRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	assert.Equal(t, codes.Unimplemented, status.Code(err))
	assert.Len(t, fake.ListStreams(), 6)
	assert.NotEmpty(t, rt.Calls(fake.Target{}), "that they were tried is known")
}

func TestStreamsThatEndWithoutAnError(t *testing.T) {
	rt := fake.New(fake.Options{})
	inMemory, _ := rt.Clients()
	for name, client := range map[string]criv1.RuntimeServiceClient{"in memory": inMemory,
		"over the wire": criv1.NewRuntimeServiceClient(serve(t, rt))} {
		t.Run(name, func(t *testing.T) {
			stream := listen(t.Context(), t, client)
			_, err := stream.Header()
			require.NoError(t, err)
			assert.Equal(t, 1, rt.BreakEvents(nil))
			_, err = stream.Recv()
			assert.ErrorIs(t, err, io.EOF)
		})
	}
}

// An event that is delivered late has the time of the change.
func ExampleRuntime_InjectEvents() {
	rt := fake.New(fake.Options{})
	_ = rt.Seed(fake.Pods(1, 1)...)
	client, _ := rt.Clients()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events, _ := client.GetContainerEvents(ctx, &criv1.GetEventsRequest{})
	rt.InjectEvents(fake.EventFault{Times: 1, Behind: 1})
	rt.RestartNext(1, 3)
	for range 3 {
		ev, _ := events.Recv()
		fmt.Println(ev.ContainerId, ev.ContainerEventType)
	}
	// Output:
	// c3 CONTAINER_CREATED_EVENT
	// c2 CONTAINER_STOPPED_EVENT
	// c3 CONTAINER_STARTED_EVENT
}
