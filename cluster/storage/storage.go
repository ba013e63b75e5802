package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/internal/listwatch"
	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/cluster/internal/table"
	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/node/volume/csi/csinode"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// requestTimeout is the deadline of one request.
const requestTimeout = 10 * time.Second

// ErrNotRead is returned for objects that the API server has not answered for.
var ErrNotRead = errors.New("it has not been read from the API server yet")

// Tokens has the tokens of service accounts: a tokens.Tokens.
type Tokens interface {
	// Token returns a token of the service account, in the status of the returned object, which must not be changed.
	// It is safe for concurrent use.
	Token(ctx context.Context, namespace, serviceAccount string,
		request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// Options are the settings of [Storage]. The zero value is valid.
type Options struct {
	// Checkpoint keeps the CSIDrivers, attachments and secrets, under the names "csidrivers", "volumeattachments" and
	// "volumesecrets". If nil, nothing is kept for the next run of the agent.
	Checkpoint runtime.States
	// Sync is called for a pod whose volume was not attached, when the node object shows another state of the volume.
	// It must not block. Agent.Sync has the pod set up its volumes at once. If nil, the pod tries again after its
	// back-off.
	Sync func(pod types.UID)
	// Logger. Default: that of package slog.
	Logger logr.Logger
}

// Storage has the objects of an API server that volumes of CSI drivers need, and publishes the drivers. It implements
// [csinode.Cluster]. Its methods are safe for concurrent use.
type Storage struct {
	client   kubernetes.Interface
	nodeName string
	tokens   Tokens
	opts     Options
	started  atomic.Bool

	drivers     *table.Table[*storagev1.CSIDriver]
	attachments *kept[*storagev1.VolumeAttachment]
	secrets     *kept[*v1.Secret]
	publisher   *publisher
	// recheck holds a token while objects may be kept that nothing uses any more.
	recheck flow.Signal

	mu      sync.Mutex
	node    *v1.Node // the newest known node object; nil before there is one
	waiting map[v1.UniqueVolumeName]*waiters
}

var _ csinode.Cluster = (*Storage)(nil)

// New returns the storage of the node. It does no I/O. The error joins what is wrong with the arguments.
func New(client kubernetes.Interface, nodeName string, tokens Tokens, opts Options) (*Storage, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("the client is nil"))
	}
	if nodeName == "" {
		errs = append(errs, errors.New("the name of the node is empty"))
	}
	if tokens == nil {
		errs = append(errs, errors.New("there are no tokens"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	return &Storage{
		client: client, nodeName: nodeName, tokens: tokens, opts: opts,
		drivers:     newDrivers(client, opts),
		attachments: newKept[*storagev1.VolumeAttachment]("volumeattachments", opts.Checkpoint),
		secrets:     newKept[*v1.Secret]("volumesecrets", opts.Checkpoint),
		publisher:   newPublisher(client, nodeName, opts.Logger),
		recheck:     flow.NewSignal(),
		waiting:     map[v1.UniqueVolumeName]*waiters{},
	}, nil
}

func newDrivers(client kubernetes.Interface, opts Options) *table.Table[*storagev1.CSIDriver] {
	return table.New(table.Options[*storagev1.CSIDriver]{
		Resource: listwatch.Resource{
			Name: "csidrivers", Client: client, Type: &storagev1.CSIDriver{},
			API:        listwatch.Of(client.StorageV1().CSIDrivers()),
			MaxBackoff: 5 * time.Second,
		},
		Reduce: func(object any) (string, *storagev1.CSIDriver, bool) {
			o, ok := object.(*storagev1.CSIDriver)
			if !ok {
				return "", nil, false
			}
			return o.Name, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID},
				Spec: o.Spec}, true
		},
		Checkpoint: opts.Checkpoint, State: "csidrivers", Logger: opts.Logger,
	})
}

// Run watches the CSIDrivers, publishes drivers and keeps objects until ctx ends, and then returns nil. A second call
// returns an error that wraps [runtime.ErrAlreadyRunning].
func (s *Storage) Run(ctx context.Context) error {
	if !s.started.CompareAndSwap(false, true) {
		return fmt.Errorf("storage: %w", runtime.ErrAlreadyRunning)
	}
	var keepers, workers sync.WaitGroup
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the last request has ended
	keepers.Go(func() { s.attachments.run(keeping) })
	keepers.Go(func() { s.secrets.run(keeping) })
	defer keepers.Wait()
	defer stop()

	workers.Go(func() { s.publisher.run(ctx) })
	workers.Go(func() { s.runRecheck(ctx) })
	err := s.drivers.Run(ctx)
	workers.Wait()
	return err
}

// Driver implements [csinode.Cluster]. The CSIDrivers are watched from the first call on. The object has the name, the
// UID and the spec. The error is a NotFound error, or wraps [ErrNotRead].
func (s *Storage) Driver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	var driver *storagev1.CSIDriver
	err := s.drivers.Read(ctx.Done(), "", func(drivers map[string]*storagev1.CSIDriver) { driver = drivers[name] })
	switch {
	case err != nil:
		return nil, fmt.Errorf("CSIDriver %s: %w: %w", name, ErrNotRead, unknown(err))
	case driver == nil:
		return nil, apierrors.NewNotFound(storagev1.Resource("csidriver"), name) // kubelet's message
	default:
		return driver, nil
	}
}

// Token implements [csinode.Cluster]. The errors are those of the [Tokens].
func (s *Storage) Token(ctx context.Context, pod *v1.Pod, audience string,
	expirationSeconds *int64) (authenticationv1.TokenRequestStatus, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: expirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name,
			UID: pod.UID},
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	token, err := s.tokens.Token(ctx, pod.Namespace, pod.Spec.ServiceAccountName, request)
	if err != nil {
		return authenticationv1.TokenRequestStatus{}, err
	}
	return token.Status, nil
}

// Install implements [csinode.Cluster]. The node object gets the ID of the node in the annotation
// csi.volume.kubernetes.io/nodeid, and the topology as labels; then the CSINode object gets the driver. A label with
// another value is an error, and nothing is published. If the API server does not answer, or the node is not registered
// yet, Install returns nil, and [Storage.Run] publishes the driver later.
func (s *Storage) Install(ctx context.Context, driver csinode.Driver) error {
	return s.publisher.install(ctx, driver)
}

// Uninstall implements [csinode.Cluster]. The driver is removed from the CSINode object and from the annotation of the
// node. The labels of its topology stay, as with kubelet: other drivers may have the same. If the API server does not
// answer, Uninstall returns nil, and [Storage.Run] removes the driver later.
func (s *Storage) Uninstall(ctx context.Context, name string) error {
	return s.publisher.uninstall(ctx, name)
}

// Ready returns nil from the time on when the CSINode object of the node exists. Before, it returns kubelet's error.
// It does not block. It is a ready check of the node: pods with volumes of drivers cannot be scheduled before.
func (s *Storage) Ready() error { return s.publisher.ready() }

// missing reports whether the API server has answered that the object does not exist.
func missing(err error) bool {
	// A proxy, and a server that does not have the resource, answer 404 without an object.
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// unknown returns the error as one that is not NotFound: of a resource, a namespace or something else that the object
// needs.
func unknown(err error) error {
	if apierrors.IsNotFound(err) {
		return errors.New(err.Error())
	}
	return err
}

// noAnswer reports whether the request has got no answer, for another reason than the end of ctx.
func noAnswer(ctx context.Context, err error) bool { return ctx.Err() == nil && !outage.Answered(err) }
