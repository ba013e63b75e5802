package tokens

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/cluster/internal/podsets"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// requestTimeout is the time limit of one request.
const requestTimeout = 30 * time.Second

// Options are the settings of [Tokens]. The zero value is valid.
type Options struct {
	// Checkpoint keeps the tokens, under the name "tokens". If nil, nothing is kept.
	Checkpoint runtime.States
	// Refreshed is called when a token of the pod was refreshed. After an outage of the API server
	// it is also called for pods whose request for a token has failed. It must not block. Agent.Sync
	// brings the token to the volume of the pod. If nil, the next sync of the pod brings it.
	Refreshed func(pod types.UID)
	// Logger. Default: that of package slog.
	Logger logr.Logger
}

// Tokens has the tokens of the service accounts of pods. Its methods are safe for
// concurrent use.
type Tokens struct {
	client  kubernetes.Interface
	opts    Options
	started atomic.Bool
	load    sync.Once
	// changed holds one token while the times of refreshes may have changed.
	changed flow.Signal
	// unsaved holds one token while there are changes to keep.
	unsaved flow.Signal

	mu      sync.Mutex
	entries map[key]*entry
	// requests are the pods for which a request is under way.
	requests map[types.UID]*underWay
	// waiting are the pods without a token whose latest request has failed.
	waiting map[types.UID]struct{}
}

// New returns Tokens that have none yet. It does no I/O.
func New(client kubernetes.Interface, opts Options) (*Tokens, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	if client == nil {
		return nil, errors.New("tokens: the client is nil")
	}
	return &Tokens{
		client: client, opts: opts, changed: flow.NewSignal(), unsaved: flow.NewSignal(),
		entries: map[key]*entry{}, requests: map[types.UID]*underWay{}, waiting: map[types.UID]struct{}{},
	}, nil
}

// underWay are the requests under way for a pod.
type underWay struct {
	count int
	// gone means that the pod has ended or is gone since one of them began.
	gone bool
}

// key identifies the requests that can share a token.
type key struct {
	namespace, account string
	audiences          string // joined with NUL
	seconds            int64  // 0: the default of the API server
	bound              authenticationv1.BoundObjectReference
	// uid is the UID of the service account, a precondition; "" if there is none.
	uid types.UID
}

func keyOf(namespace, account string, request *authenticationv1.TokenRequest) key {
	k := key{namespace: namespace, account: account, audiences: strings.Join(request.Spec.Audiences, "\x00"),
		uid: request.UID}
	if s := request.Spec.ExpirationSeconds; s != nil {
		k.seconds = *s
	}
	if b := request.Spec.BoundObjectRef; b != nil {
		k.bound = *b
	}
	return k
}

// pod returns the UID of the pod that the token is bound to, "" if it is bound to something
// else.
func (k key) pod() types.UID {
	if k.bound.Kind != "Pod" {
		return ""
	}
	return k.bound.UID
}

// Token returns a token of the service account for the request, which must not be changed
// afterwards. The token is in the status of the returned object, which is shared and read-only.
// If the API server answers with an error, that is the error.
func (t *Tokens) Token(ctx context.Context, namespace, serviceAccount string,
	request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	t.load.Do(t.restore)
	k := keyOf(namespace, serviceAccount, request)
	t.mu.Lock()
	held := t.entries[k]
	t.mu.Unlock()
	if held != nil && !held.expired(time.Now()) {
		return held.token, nil
	}
	token, err := t.request(ctx, k, request)
	switch {
	case err == nil:
		return token, nil
	case held != nil && ctx.Err() == nil && !outage.Answered(err):
		return held.token, nil
	default:
		return nil, fmt.Errorf("failed to fetch token: %w", err)
	}
}

// request requests a token, and holds it, unless the pod has gone meanwhile. If the API server
// does not have the pod or the service account any more, the present token is forgotten.
func (t *Tokens) request(ctx context.Context, k key,
	request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ended := t.begin(k.pod())
	asked := time.Now()
	token, err := t.client.CoreV1().ServiceAccounts(k.namespace).CreateToken(limited, k.account, request,
		metav1.CreateOptions{})
	t.mu.Lock()
	defer t.mu.Unlock()
	gone := ended()
	delete(t.waiting, k.pod())
	switch {
	case err != nil:
		if missing(err) {
			t.forget(k)
		}
		if !gone && k.pod() != "" && t.entries[k] == nil {
			t.waiting[k.pod()] = struct{}{}
		}
		return nil, err
	case token.Status.Token == "":
		return nil, errors.New("the API server has answered without a token")
	case !gone:
		t.entries[k] = newEntry(request, token, asked)
		t.touch()
	}
	return token, nil
}

// begin notes that a request for the pod begins. The function that it returns notes the end,
// and reports whether the pod has gone meanwhile; mu is held then.
func (t *Tokens) begin(pod types.UID) (end func() (gone bool)) {
	if pod == "" {
		return func() bool { return false }
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.requests[pod]
	if r == nil {
		r = &underWay{}
		t.requests[pod] = r
	}
	r.count++
	return func() bool {
		if r.count--; r.count == 0 && t.requests[pod] == r {
			delete(t.requests, pod)
		}
		return r.gone
	}
}

// missing reports whether the API server has answered that the pod or the service account does
// not exist, or not with this UID.
func missing(err error) bool {
	// A proxy, and a server that does not have the resource, answer 404 without an object.
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err,
		metav1.CauseTypeUnexpectedServerResponse)
}

// Update takes changes of the pods of the API server: those that are new or have changed,
// and those that do not exist any more. It does not block.
func (t *Tokens) Update(changed, removed []*v1.Pod) {
	if ended := podsets.Ended(changed, removed); len(ended) > 0 {
		t.forgetPods(ended.Has)
	}
}

// Retain forgets the tokens of all pods but these, which are all pods of the API server on this
// node. It is called after a complete list: pods may have gone while no agent ran.
func (t *Tokens) Retain(pods []*v1.Pod) {
	t.load.Do(t.restore)
	active := podsets.Active(pods)
	t.forgetPods(func(uid types.UID) bool { return !active.Has(uid) })
}

// forgetPods drops the tokens of the pods for which gone returns true.
func (t *Tokens) forgetPods(gone func(uid types.UID) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.entries {
		if uid := k.pod(); uid != "" && gone(uid) {
			t.forget(k)
		}
	}
	maps.DeleteFunc(t.waiting, func(uid types.UID, _ struct{}) bool { return gone(uid) })
	for uid, r := range t.requests {
		if gone(uid) {
			r.gone = true
			delete(t.requests, uid) // a request that begins later is another one
		}
	}
}

// forget drops a token. mu is held.
func (t *Tokens) forget(k key) {
	if _, ok := t.entries[k]; ok {
		delete(t.entries, k)
		t.touch()
	}
}

// touch has Run look at the entries again, and keep them. mu is held.
func (t *Tokens) touch() {
	t.unsaved.Notify()
	t.changed.Notify()
}
