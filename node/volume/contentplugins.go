package volume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// ConfigMap is the [Plugin] for the keys of a config map as files.
type ConfigMap struct{ Sources }

// Secret is the [Plugin] for the keys of a secret as files. They are in memory if the agent
// may mount.
type Secret struct{ Sources }

// DownwardAPI is the [Plugin] for fields of the pod as files.
type DownwardAPI struct{ Sources }

// Projected is the [Plugin] for files of several sources in one directory. They are in
// memory if the agent may mount; with a source of the type podCertificate it must.
type Projected struct{ Sources }

var (
	_ Plugin = ConfigMap{}
	_ Plugin = Secret{}
	_ Plugin = DownwardAPI{}
	_ Plugin = Projected{}
)

// Name returns kubelet's name of the plugin.
func (ConfigMap) Name() string { return "kubernetes.io/configmap" }

// Name returns kubelet's name of the plugin.
func (Secret) Name() string { return "kubernetes.io/secret" }

// Name returns kubelet's name of the plugin.
func (DownwardAPI) Name() string { return "kubernetes.io/downward-api" }

// Name returns kubelet's name of the plugin.
func (Projected) Name() string { return "kubernetes.io/projected" }

// Supports reports whether the volume is a config map.
func (ConfigMap) Supports(v *v1.Volume) bool { return v.ConfigMap != nil }

// Supports reports whether the volume is a secret.
func (Secret) Supports(v *v1.Volume) bool { return v.Secret != nil }

// Supports reports whether the volume has fields of the pod.
func (DownwardAPI) Supports(v *v1.Volume) bool { return v.DownwardAPI != nil }

// Supports reports whether the volume is a projected one.
func (Projected) Supports(v *v1.Volume) bool { return v.Projected != nil }

// SetUp brings the files to the latest content of the config map.
func (p ConfigMap) SetUp(ctx context.Context, req SetUpRequest) (runtime.Volume, error) {
	return content{Sources: p.Sources}.setUp(ctx, req, func(files *filler) error {
		src := req.Volume.ConfigMap
		m, err := p.configMap(ctx, req.Pod.Namespace, src.Name, src.Optional)
		if err != nil {
			return err
		}
		return files.addConfigMap(m, src.Items, p.grant(src.DefaultMode, src.DefaultUser),
			ptr.Deref(src.Optional, false))
	})
}

// SetUp brings the files to the latest content of the secret.
func (p Secret) SetUp(ctx context.Context, req SetUpRequest) (runtime.Volume, error) {
	return content{Sources: p.Sources, memory: true}.setUp(ctx, req, func(files *filler) error {
		src := req.Volume.Secret
		s, err := p.secret(ctx, req.Pod.Namespace, src.SecretName, src.Optional)
		if err != nil {
			return err
		}
		return files.addSecret(s, src.Items, p.grant(src.DefaultMode, src.DefaultUser), ptr.Deref(src.Optional, false))
	})
}

// SetUp brings the files to the latest fields of the pod.
func (p DownwardAPI) SetUp(ctx context.Context, req SetUpRequest) (runtime.Volume, error) {
	return content{Sources: p.Sources, memory: true}.setUp(ctx, req, func(files *filler) error {
		src := req.Volume.DownwardAPI
		return files.addDownward(req.Pod, src.Items, p.allocatable(), p.grant(src.DefaultMode, src.DefaultUser))
	})
}

// SetUp brings the files to the latest content of all sources.
func (p Projected) SetUp(ctx context.Context, req SetUpRequest) (runtime.Volume, error) {
	hasKey := slices.ContainsFunc(req.Volume.Projected.Sources,
		func(s v1.VolumeProjection) bool { return s.PodCertificate != nil })
	return content{Sources: p.Sources, memory: true, noDisk: hasKey}.setUp(ctx, req, func(files *filler) error {
		src := req.Volume.Projected
		var errs []error
		for i := range src.Sources {
			err := p.project(ctx, req, files, i, p.grant(src.DefaultMode, src.DefaultUser))
			if errors.Is(err, errTooMuch) { // so are all others
				return err
			}
			if err != nil {
				errs = append(errs, err)
			}
		}
		return utilerrors.NewAggregate(errs)
	})
}

// project adds the files of the source with that index.
func (p Projected) project(ctx context.Context, req SetUpRequest, files *filler, index int, g grant) error {
	pod, src := req.Pod, &req.Volume.Projected.Sources[index]
	switch {
	case src.Secret != nil:
		s, err := p.secret(ctx, pod.Namespace, src.Secret.Name, src.Secret.Optional)
		if err != nil {
			return err
		}
		return files.addSecret(s, src.Secret.Items, g, ptr.Deref(src.Secret.Optional, false))
	case src.ConfigMap != nil:
		m, err := p.configMap(ctx, pod.Namespace, src.ConfigMap.Name, src.ConfigMap.Optional)
		if err != nil {
			return err
		}
		return files.addConfigMap(m, src.ConfigMap.Items, g, ptr.Deref(src.ConfigMap.Optional, false))
	case src.DownwardAPI != nil:
		return files.addDownward(pod, src.DownwardAPI.Items, p.allocatable(), g)
	case src.ServiceAccountToken != nil:
		return p.token(ctx, pod, files, src.ServiceAccountToken, g)
	case src.ClusterTrustBundle != nil:
		return p.trustBundle(ctx, pod, files, src.ClusterTrustBundle, g)
	case src.PodCertificate != nil:
		return p.certificate(ctx, req, files, index, g)
	default:
		return nil // an empty source, which the API server accepts
	}
}

// token adds the token of the pod's service account. Only the user of the containers may
// read it, if they have one user, and the pod's fsGroup.
func (p Projected) token(ctx context.Context, pod *v1.Pod, files *filler, src *v1.ServiceAccountTokenProjection,
	g grant) error {
	if p.Tokens == nil {
		return fmt.Errorf("%w: serviceAccountToken in a projected volume; this agent has no source of tokens",
			ErrUnsupported)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: src.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
			Name: pod.Name, UID: pod.UID},
	}}
	if src.Audience != "" {
		request.Spec.Audiences = []string{src.Audience}
	}
	got, err := p.Tokens.Token(ctx, pod.Namespace, pod.Spec.ServiceAccountName, request)
	if err != nil {
		return err
	}
	if got == nil || got.Status.Token == "" {
		return errors.New("the source of tokens returned none")
	}
	return files.add(src.Path, ownFile(pod, []byte(got.Status.Token), g.of(nil, src.User)))
}

// trustBundle adds the certificates of cluster trust bundles.
func (p Projected) trustBundle(ctx context.Context, pod *v1.Pod, files *filler, src *v1.ClusterTrustBundleProjection,
	g grant) error {
	if p.TrustBundles == nil {
		return fmt.Errorf("%w: clusterTrustBundle in a projected volume; this agent has no source of them",
			ErrUnsupported)
	}
	if src.Name == nil && src.SignerName == nil {
		return errors.New("ClusterTrustBundle projection requires either name or signerName to be set")
	}
	data, err := p.TrustBundles.TrustBundle(ctx, pod, src)
	if err != nil {
		return err
	}
	return files.add(src.Path, ownFile(pod, data, g.of(nil, src.User)))
}

// certificate adds the key and the certificates of the pod, in one file, in two, or in both ways.
func (p Projected) certificate(ctx context.Context, req SetUpRequest, files *filler, index int,
	g grant) error {
	if p.PodCertificates == nil {
		return fmt.Errorf("%w: podCertificate in a projected volume; this agent has no source of them", ErrUnsupported)
	}
	src := req.Volume.Projected.Sources[index].PodCertificate
	key, chain, err := p.PodCertificates.PodCertificate(ctx, req.Pod, req.Volume.Name, index, src)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path string
		data []byte
	}{{src.CredentialBundlePath, slices.Concat(key, chain)}, {src.KeyPath, key}, {src.CertificateChainPath, chain}} {
		if f.path == "" {
			continue
		}
		if err := files.add(f.path, ownFile(req.Pod, f.data, g.of(nil, src.User))); err != nil {
			return err
		}
	}
	return nil
}

// ownFile is a file of its owner, by default the user that all containers of the pod run as. If there is one,
// or the pod has an fsGroup, nobody else may read it (kubelet: collectData).
func ownFile(pod *v1.Pod, data []byte, g grant) file {
	g.owner = cmp.Or(g.owner, userOf(pod))
	if g.owner != nil || accessOf(pod).gid >= 0 {
		g.mode = 0o600
	}
	return g.file(data)
}

// userOf returns the user that all containers of the pod run as, nil if their specs do not
// name one or name several (kubelet: FsUserFrom).
func userOf(pod *v1.Pod) *int64 {
	var user *int64
	for _, c := range podspec.Containers(&pod.Spec) {
		var own *int64
		if sc := pod.Spec.SecurityContext; sc != nil {
			own = sc.RunAsUser
		}
		if sc := c.SecurityContext; sc != nil && sc.RunAsUser != nil {
			own = sc.RunAsUser
		}
		if own == nil || user != nil && *user != *own {
			return nil
		}
		user = own
	}
	return user
}

// TearDown unmounts the directory; the manager removes it.
func (p ConfigMap) TearDown(_ context.Context, req TearDownRequest) error { return p.takeDown(req.Dir) }

// TearDown unmounts the directory; the manager removes it.
func (p Secret) TearDown(_ context.Context, req TearDownRequest) error { return p.takeDown(req.Dir) }

// TearDown unmounts the directory; the manager removes it.
func (p DownwardAPI) TearDown(_ context.Context, req TearDownRequest) error {
	return p.takeDown(req.Dir)
}

// TearDown unmounts the directory; the manager removes it.
func (p Projected) TearDown(_ context.Context, req TearDownRequest) error { return p.takeDown(req.Dir) }

// takeDown forgets the volume and unmounts it, if it is in memory.
func (s Sources) takeDown(dir string) error {
	s.seen.forget(dir)
	return unmountOwn(dir)
}
