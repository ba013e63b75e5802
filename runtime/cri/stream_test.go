package cri_test

import (
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// lister lists the pods of a fake runtime.
type lister struct {
	*fake.Runtime
	client *cri.Runtime
}

// newLister returns one of 10 pods with two containers each, of a runtime without
// some calls.
func newLister(t *testing.T, without ...string) *lister {
	rt := fake.New(fake.Options{Without: without})
	require.NoError(t, rt.Seed(fake.Pods(10, 2)...))
	rs, is := rt.Clients()
	return &lister{rt, cri.New(rs, is, cri.Options{})}
}

// list lists all pods.
func (l *lister) list(t *testing.T) error {
	t.Helper()
	pods, err := l.client.ListPods(t.Context())
	if err != nil {
		return err
	}
	assert.Len(t, pods, 10)
	for _, p := range pods {
		assert.Len(t, p.Sandboxes, 1)
		assert.Len(t, p.Containers, 2)
	}
	return nil
}

// take returns and forgets the list calls so far, in the order of their names.
func (l *lister) take() []string {
	var names []string
	for _, c := range l.Calls(fake.Target{}) {
		if c.Method != "Version" {
			names = append(names, c.Method)
		}
	}
	l.ForgetCalls()
	slices.Sort(names)
	return names
}

var (
	unary    = []string{"ListContainers", "ListPodSandbox"}
	streamed = []string{"StreamContainers", "StreamPodSandboxes"}
)

func TestListsAreStreamed(t *testing.T) {
	l := newLister(t)
	for range 2 {
		require.NoError(t, l.list(t))
		assert.Equal(t, streamed, l.take())
	}

	l.Inject(fake.Fault{Call: "StreamContainers", Err: status.Error(codes.Internal, "store")})
	assert.EqualError(t, l.list(t), "StreamContainers: store")
	assert.NotContains(t, l.take(), "ListContainers", "only a call that is missing has a stand-in")

	_, err := l.client.InspectPod(t.Context(), runtime.PodRef{UID: "u"})
	require.NoError(t, err)
	assert.Equal(t, unary, l.take(), "the list of one pod is short")
}

func TestRuntimeWithoutStreamedLists(t *testing.T) {
	l := newLister(t, fake.ListStreams()...)
	require.NoError(t, l.list(t))
	assert.Subset(t, slices.Concat(unary, streamed), l.take())
	require.NoError(t, l.list(t))
	assert.Equal(t, unary, l.take(), "it is not asked again")

	mend := l.Inject(fake.Fault{Call: "ListContainers", Err: runtime.ErrUnavailable})
	assert.ErrorIs(t, l.list(t), runtime.ErrUnavailable)
	mend()
	l.take()
	require.NoError(t, l.list(t))
	assert.Subset(t, l.take(), unary)
	require.NoError(t, l.list(t))
	assert.Equal(t, unary, l.take(), "it is asked once more, not each time")
}

// TestListsAreRequestedAgainAfterAnUpdate has a runtime that learns to stream.
func TestListsAreRequestedAgainAfterAnUpdate(t *testing.T) {
	l := newLister(t)
	var updated []func()
	for _, call := range streamed {
		updated = append(updated,
			l.Inject(fake.Fault{Call: call, Err: status.Error(codes.Unimplemented, "unknown method")}))
	}
	require.NoError(t, l.list(t))
	for _, update := range updated {
		update()
	}
	l.take()
	const tooLarge = "trying to send message larger than max (16784723 vs. 16777216)"
	shrink := l.Inject(fake.Fault{Call: "ListContainers", Err: status.Error(codes.ResourceExhausted, tooLarge)})
	assert.EqualError(t, l.list(t), "ListContainers: "+tooLarge+": bytes of the reply, and the runtime's own limit; "+
		"raise that (max_send_message_size in containerd, grpc_max_send_msg_size in CRI-O)")
	assert.NotContains(t, l.take(), "StreamContainers") // the other list may come after the failure, and stream
	shrink()
	require.NoError(t, l.list(t))
	assert.Equal(t, streamed, l.take(), "now it streams, and the size does not matter")
}

func TestListsThatAreTooLarge(t *testing.T) {
	served := func(without ...string) *fake.Runtime {
		rt := fake.New(fake.Options{Without: without})
		require.NoError(t, rt.Seed(fake.Pods(400, 1)...))
		return rt
	}
	old, limit := served(fake.ListStreams()...), 80<<10

	path := socket(t)
	serve(t, path, old)
	_, err := dial(t, path, cri.Options{MaxMessageSize: limit}).ListPods(t.Context())
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.Regexp(t,
		`^List(Containers|PodSandbox): grpc: received message larger than max \(\d{5,6} vs\. 81920\): bytes of the reply, and the limit; raise cri\.Options\.MaxMessageSize$`, err.Error())

	// A runtime with a limit of its own.
	path = socket(t)
	lis, err := net.Listen("unix", path)
	require.NoError(t, err)
	srv := grpc.NewServer(grpc.MaxSendMsgSize(limit))
	old.Register(srv)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(lis) }()
	t.Cleanup(func() { srv.Stop(); require.NoError(t, <-ended) })
	_, err = dial(t, path, cri.Options{}).ListPods(t.Context())
	assert.Regexp(t,
		`^List(Containers|PodSandbox): trying to send message larger than max \(\d{5,6} vs\. 81920\): bytes of the reply, and the runtime's own limit; raise that `, err.Error())

	path = socket(t)
	serve(t, path, served())
	pods, err := dial(t, path, cri.Options{MaxMessageSize: limit}).ListPods(t.Context())
	require.NoError(t, err)
	assert.Len(t, pods, 400)
}
