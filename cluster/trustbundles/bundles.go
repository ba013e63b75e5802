package trustbundles

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/cluster/internal/listwatch"
	"github.com/kubeletkit/kubeletkit/cluster/internal/table"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// ErrNotRead is returned by [Bundles.TrustBundle] while the bundles are not known.
var ErrNotRead = errors.New("cluster trust bundles have not been read from the API server yet")

// Options are the settings of [Bundles]. The zero value is valid.
type Options struct {
	// Checkpoint keeps the bundles, under the name "trustbundles". nil: nothing is kept.
	Checkpoint runtime.States
	// Changed is called when bundles were read or have changed. It must not block. Have the pods
	// synced for which [Uses] is true. nil: nothing is called.
	Changed func()
	// Logger. Default: that of package slog.
	Logger logr.Logger
}

// Bundles are the cluster trust bundles of a cluster. Its methods are safe for concurrent use.
type Bundles struct{ table *table.Table[bundle] }

// bundle is what is needed of a cluster trust bundle.
type bundle struct {
	Signer string            `json:"signer,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	PEM    string            `json:"pem"`
}

// New returns the bundles of the cluster. It does no I/O.
func New(client kubernetes.Interface, opts Options) (*Bundles, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	if client == nil {
		return nil, errors.New("trustbundles: the client is nil")
	}
	api := listwatch.NewVersions("ClusterTrustBundles",
		listwatch.Of(client.CertificatesV1().ClusterTrustBundles()),
		listwatch.Of(client.CertificatesV1beta1().ClusterTrustBundles()))
	return &Bundles{table.New(table.Options[bundle]{
		// There is no Type: it depends on the server.
		Resource: listwatch.Resource{Name: "clustertrustbundles", Client: client, API: api.API(),
			MaxBackoff: 30 * time.Second},
		Reduce:     reduce,
		Checkpoint: opts.Checkpoint, State: "trustbundles", Changed: opts.Changed, Logger: opts.Logger,
	})}, nil
}

// Run watches the bundles until ctx ends, from the first call of TrustBundle on, and then returns
// nil. A second call returns an error that wraps runtime.ErrAlreadyRunning.
func (b *Bundles) Run(ctx context.Context) error {
	if err := b.table.Run(ctx); err != nil {
		return fmt.Errorf("trustbundles: %w", err)
	}
	return nil
}

// TrustBundle returns the certificates that a projection selects. It waits for the first answer of
// the API server, a second at most. The error wraps [ErrNotRead], or has kubelet's text if
// nothing matches.
func (b *Bundles) TrustBundle(ctx context.Context, pod *v1.Pod,
	request *v1.ClusterTrustBundleProjection) ([]byte, error) {
	// nil matches nothing, an empty one everything
	selector, err := metav1.LabelSelectorAsSelector(request.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("while parsing label selector: %w", err)
	}
	var found []string
	err = b.table.Read(ctx.Done(), "", func(all map[string]bundle) {
		if request.Name != nil {
			if named, ok := all[*request.Name]; ok {
				found = []string{named.PEM}
			}
			return
		}
		for _, one := range all {
			if one.Signer == ptr.Deref(request.SignerName, "") && selector.Matches(labels.Set(one.Labels)) {
				found = append(found, one.PEM)
			}
		}
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotRead, err)
	case len(found) > 0:
		return normalize(string(pod.UID), found), nil
	case ptr.Deref(request.Optional, false):
		return []byte{}, nil
	case request.Name != nil:
		return nil, fmt.Errorf("while getting ClusterTrustBundle: %w",
			apierrors.NewNotFound(certificatesv1.Resource("clustertrustbundle"), *request.Name))
	default:
		return nil, errors.New("combination of signerName and labelSelector matched zero ClusterTrustBundles")
	}
}

// Uses reports whether a volume that a container of the pod uses has cluster trust bundles.
func Uses(pod *v1.Pod) bool {
	for v := range podspec.UsedVolumes(&pod.Spec) {
		if p := v.Projected; p != nil {
			for j := range p.Sources {
				if p.Sources[j].ClusterTrustBundle != nil {
					return true
				}
			}
		}
	}
	return false
}

func reduce(object any) (name string, b bundle, ok bool) {
	switch o := object.(type) {
	case *certificatesv1.ClusterTrustBundle:
		return o.Name, bundle{o.Spec.SignerName, o.Labels, o.Spec.TrustBundle}, true
	case *certificatesv1beta1.ClusterTrustBundle:
		return o.Name, bundle{o.Spec.SignerName, o.Labels, o.Spec.TrustBundle}, true
	default:
		return "", bundle{}, false
	}
}
