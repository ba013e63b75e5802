package podcertificates

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/internal/podsets"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// patience is how long PodCertificate waits for the first certificate.
const patience = time.Second

var (
	// ErrNotIssued is returned by [Certificates.PodCertificate] while there is no certificate.
	ErrNotIssued = errors.New("credential bundle is not issued yet")
	// ErrRefused is returned by [Certificates.PodCertificate] after the request was denied or has failed.
	ErrRefused = errors.New("PodCertificateRequest was permanently")

	errUnknownType = errors.New("unknown type")
	errNoNode      = errors.New("the node object is not known yet")
	errNoPod       = errors.New("the API server does not have the pod")
	errEnded       = errors.New("the pod has ended")
)

// Options are the settings of [Certificates]. NodeUID is required.
type Options struct {
	// NodeUID returns the UID of the node object, and "" while there is none. Requests name it.
	NodeUID func() types.UID
	// Pod returns a pod of the API server on this node. Other pods, and pods that have ended, get no
	// certificate. If nil, all pods do.
	Pod func(types.UID) (*v1.Pod, bool)
	// Changed is called when a certificate of the pod was issued or refused. It must not block.
	// Agent.Sync brings it to the volume. nil: the next sync of the pod does that.
	Changed func(pod types.UID)
	// Observer receives events of requests that were denied or have failed, and of certificates that were not refreshed
	// in time.
	runtime.Observer
}

// Certificates are the certificates of the pods of a node. Its methods are safe for
// concurrent use.
type Certificates struct {
	server   server
	nodeName string
	opts     Options
	// waitForObserver is called when Run ends.
	waitForObserver func()
	started         atomic.Bool
	// needed is closed when the first pod needs a certificate, and read when the requests were
	// read from the API server for the first time.
	needed, read chan struct{}
	need         sync.Once
	// changed holds one token while the times of projections may have changed.
	changed flow.Signal
	// keys is held while a key is made.
	keys sync.Mutex

	mu          sync.Mutex
	projections map[key]*projection
	// requests are the projections that wait for an answer, by namespace and name of the request.
	requests map[types.NamespacedName]*projection
	// readErr is the error of the latest read of requests; an answer resets it.
	readErr error
}

// New returns the certificates of the pods of a node. It does no I/O.
func New(client kubernetes.Interface, nodeName string, opts Options) (*Certificates, error) {
	observer, wait := opts.Queued()
	opts.Observer = observer
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("podcertificates: the client is nil"))
	}
	if nodeName == "" {
		errs = append(errs, errors.New("podcertificates: the name of the node is required"))
	}
	if opts.NodeUID == nil {
		errs = append(errs, errors.New("podcertificates: Options.NodeUID is required"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Certificates{
		server: newServer(client), nodeName: nodeName, opts: opts, waitForObserver: wait,
		needed: make(chan struct{}), read: make(chan struct{}), changed: flow.NewSignal(),
		projections: map[key]*projection{}, requests: map[types.NamespacedName]*projection{},
	}, nil
}

// key identifies a source of a volume.
type key struct {
	pod    types.UID
	volume string
	source int
}

// projection is a source of a volume. The mutex of Certificates guards what changes.
type projection struct {
	key
	// pod and spec do not change: the volumes of a pod do not.
	pod  *v1.Pod
	spec *v1.PodCertificateProjection
	// required is the time of the first call of PodCertificate.
	required time.Time
	// settled is closed when the first request was answered.
	settled chan struct{}

	// issued is the latest certificate, nil if there is none.
	issued *certificate
	// pending is the request under way, nil if there is none.
	pending *pending
	// refused is set when a request was denied or has failed; it is not repeated.
	refused error
	// err is the error of the latest try, and failures the number of those in a row. It is
	// not repeated before retryAt.
	err      error
	failures int
	retryAt  time.Time
}

// certificate is what was issued.
type certificate struct {
	key, chain []byte // PEM
	refreshAt  time.Time
	// overdueAt and expiredAt are the times of two warning events; zero after the event.
	overdueAt, expiredAt time.Time
}

// pending is a request without an answer.
type pending struct {
	object *certificatesv1.PodCertificateRequest
	key    []byte // PEM
	// sent means that the API server has accepted it, and seen that the watch has delivered it.
	sent, seen bool
	// lostAt is the time at which it counts as deleted if it was sent and not seen.
	lostAt time.Time
}

func (p *pending) name() types.NamespacedName {
	return types.NamespacedName{Namespace: p.object.Namespace, Name: p.object.Name}
}

// PodCertificate returns the private key and the certificates of a source of a volume, in PEM
// format, which must not be changed. The first call begins the request, and waits up to a second
// for the certificate. The error wraps [ErrNotIssued] or [ErrRefused].
func (c *Certificates) PodCertificate(ctx context.Context, pod *v1.Pod, volume string, source int,
	spec *v1.PodCertificateProjection) (keyPEM, chain []byte, err error) {
	p, err := c.projection(key{pod.UID, volume, source}, pod, spec)
	if err != nil {
		return nil, nil, err
	}
	c.need.Do(func() { close(c.needed) })
	timer := time.NewTimer(time.Until(p.required.Add(patience)))
	defer timer.Stop()
	select {
	case <-p.settled:
	case <-timer.C:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.refused != nil:
		return nil, nil, p.refused
	case p.issued != nil:
		return p.issued.key, p.issued.chain, nil
	case p.err != nil:
		return nil, nil, fmt.Errorf("%w: %w", ErrNotIssued, p.err)
	case c.readErr != nil:
		return nil, nil, fmt.Errorf("%w: %w", ErrNotIssued, c.readErr)
	default:
		return nil, nil, ErrNotIssued
	}
}

// projection returns the projection, a new one if there is none.
func (c *Certificates) projection(k key, pod *v1.Pod, spec *v1.PodCertificateProjection) (*projection, error) {
	c.mu.Lock()
	p, ok := c.projections[k]
	if !ok {
		p = &projection{key: k, pod: pod, spec: spec, required: time.Now(), settled: make(chan struct{})}
		c.projections[k] = p
		c.changed.Notify()
	}
	c.mu.Unlock()
	if ok || c.opts.Pod == nil {
		return p, nil
	}
	// After it was added: Update forgets a pod that ends from now on.
	current, known := c.opts.Pod(k.pod)
	if known && !podspec.IsPhaseTerminal(current.Status.Phase) {
		return p, nil
	}
	c.forgetPods(func(uid types.UID) bool { return uid == k.pod })
	err := errNoPod
	if known {
		err = errEnded
	}
	return nil, fmt.Errorf("%w: %w", ErrNotIssued, err)
}

// Update forgets what it has of pods that are gone or have ended.
func (c *Certificates) Update(changed, removed []*v1.Pod) {
	if ended := podsets.Ended(changed, removed); len(ended) > 0 {
		c.forgetPods(ended.Has)
	}
}

// Retain forgets what it has of all pods but these, which are all pods of the API server on
// this node.
func (c *Certificates) Retain(pods []*v1.Pod) {
	active := podsets.Active(pods)
	c.forgetPods(func(uid types.UID) bool { return !active.Has(uid) })
}

func (c *Certificates) forgetPods(gone func(types.UID) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, p := range c.projections {
		if gone(k.pod) {
			c.drop(p)
			delete(c.projections, k)
		}
	}
}

// drop forgets the request under way. mu is held.
func (c *Certificates) drop(p *projection) {
	if p.pending != nil {
		delete(c.requests, p.pending.name())
		p.pending = nil
	}
}
