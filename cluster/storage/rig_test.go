package storage

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
)

var errAway = errors.New("connection refused")

// fixedTokens has one token, and keeps the requests.
type fixedTokens struct {
	requests []*authenticationv1.TokenRequest
	err      error
}

func (f *fixedTokens) Token(_ context.Context, namespace, account string,
	request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	f.requests = append(f.requests, request)
	answer := request.DeepCopy()
	answer.Status.Token = "of " + namespace + "/" + account
	return answer, f.err
}

// rig is a storage with an API server in memory.
type rig struct {
	*testing.T
	api     *apitest.Server
	disk    *apitest.Disk
	tokens  *fixedTokens
	storage *Storage
	stop    func()

	mu     sync.Mutex
	synced []string
}

// onNode runs the test with a storage that runs, in virtual time. The node object is known to the API server, and the
// storage gets it from register.
func onNode(t *testing.T, test func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, api: apitest.New(), disk: &apitest.Disk{}, tokens: &fixedTokens{}}
		r.api.Put("nodes", &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "uid-1"}})
		r.start()
		defer func() { r.stop() }()
		test(r)
	})
}

// start runs a new storage, as a restarted agent does.
func (r *rig) start() {
	s, err := New(r.api.Client(), "node", r.tokens, Options{Checkpoint: r.disk, Sync: func(pod types.UID) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.synced = append(r.synced, string(pod))
	}})
	require.NoError(r, err)
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r.storage = s
	r.stop = func() {
		cancel()
		require.NoError(r, <-done)
	}
}

// restart ends the storage and starts another one.
func (r *rig) restart() {
	r.after(2 * time.Second)
	r.stop()
	r.start()
}

// register has the storage know the node object as the API server has it.
func (r *rig) register() {
	r.storage.NodeChanged(r.object())
	synctest.Wait()
}

func (r *rig) object() *v1.Node { return r.api.Object("nodes", "", "node").(*v1.Node) }

// csiNode returns the CSINode object, nil if there is none.
func (r *rig) csiNode() *storagev1.CSINode {
	object, _ := r.api.Object("csinodes", "", "node").(*storagev1.CSINode)
	return object
}

func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// setAway has no request be answered, or all again.
func (r *rig) setAway(away bool) {
	r.refuse(func(*apitest.Request) error {
		if away {
			return errAway
		}
		return nil
	})
	r.api.BreakWatches()
}

// refuse has requests fail with the errors of the function.
func (r *rig) refuse(f func(*apitest.Request) error) {
	r.api.Before(func(req *apitest.Request) (*http.Response, error) {
		err := f(req)
		if status := apierrors.APIStatus(nil); errors.As(err, &status) {
			return apitest.Response(nil, err), nil
		}
		return nil, err
	})
}

// requests returns the requests since the last call, without reads if only writes are wanted.
func (r *rig) requests(verbs ...string) (out []string) {
	for _, req := range r.api.Requests() {
		verb, _, _ := strings.Cut(req, " ")
		if len(verbs) == 0 || slices.Contains(verbs, verb) {
			out = append(out, req)
		}
	}
	return out
}

func (r *rig) takeSynced() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	synced := r.synced
	r.synced = nil
	return synced
}

func forbidden(req *apitest.Request) error {
	return apierrors.NewForbidden(storagev1.Resource(req.Resource), req.Name, errors.New("no relationship found"))
}
