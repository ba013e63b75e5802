package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Sources have what volumes of the types configMap, secret, downwardAPI and projected
// contain.
type Sources struct {
	// Objects has the secrets and config maps. nil: there are none.
	Objects runtime.Objects
	// Tokens has the tokens of service accounts. nil: volumes with tokens are not supported.
	Tokens TokenSource
	// TrustBundles has cluster trust bundles. nil: volumes with them are not supported.
	TrustBundles TrustBundleSource
	// PodCertificates has the certificates of pods. nil: volumes with them are not supported.
	PodCertificates PodCertificateSource
	// Claims has the claims and the persistent volumes. nil: claims are not supported.
	Claims ClaimSource
	// NodeLabels returns the labels of the node object. Persistent volumes whose node affinity does
	// not match them are refused. It must not block, and the labels must not be changed. nil: the
	// node affinity is not checked.
	NodeLabels func() map[string]string
	// Allocatable is what pods can have of the node. It is the value of a limit that a
	// container does not have, and the largest size of a volume in memory.
	Allocatable v1.ResourceList
	// NodeAllocatable returns it as it is now, in place of Allocatable. nil: Allocatable.
	NodeAllocatable func() v1.ResourceList

	// FileLabel is that of [runtime.Host]. If it is not empty, claims are refused if their containers have different
	// SELinux labels, and plugins mount volumes with a label.
	FileLabel string

	seLinux seLinux
	// owners is that of [Options].FileOwners.
	owners bool
	before steps
	// paths are the persistent volumes that are being set up.
	paths *flow.Locks
	// persistent are the volumes that a [PersistentPlugin] sets up. nil: there are none.
	persistent *persistentVolumes
	// checks are the checks of paths of the host that are under way.
	checks *pathChecks
	// event receives what the user of a pod should know, beside errors.
	event runtime.EventFunc
	// seen are the volumes that need no comparison. nil: all do.
	seen *seen
	// onDisk is called if files that belong in memory are written to disk. nil: nothing is.
	onDisk func(error)
}

// TokenSource has the tokens of service accounts. It is called at each sync of a pod, so it
// keeps tokens and refreshes them before they expire. Sync the pod when its token was
// refreshed; its volume then gets the new one. It is safe for concurrent use.
type TokenSource interface {
	// Token returns a token of the service account. The request has the pod to which it is
	// bound, the audience and the lifetime; it must not be changed. The token is in the status
	// of what is returned, which is shared and read-only.
	Token(ctx context.Context, namespace, serviceAccount string,
		request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// TrustBundleSource has cluster trust bundles. It is called at each sync of a pod, so it keeps
// them. Sync the pods with such volumes when a bundle has changed. It is safe for concurrent
// use.
type TrustBundleSource interface {
	// TrustBundle returns the certificates that the projection selects, in PEM format, each
	// once. The request must not be changed. If nothing matches, the result is empty if the
	// projection is optional, and an error otherwise.
	TrustBundle(ctx context.Context, pod *v1.Pod, request *v1.ClusterTrustBundleProjection) ([]byte, error)
}

// PodCertificateSource has the private keys and certificates of pods. It is called at each sync of
// a pod, so it keeps and refreshes them. Sync the pod when it has a new certificate. It is safe for
// concurrent use.
type PodCertificateSource interface {
	// PodCertificate returns the private key and the chain of certificates of a source of a
	// projected volume, each in PEM format. source is its index in the volume. The projection
	// must not be changed.
	PodCertificate(ctx context.Context, pod *v1.Pod, volume string, source int,
		projection *v1.PodCertificateProjection) (key, chain []byte, err error)
}

// OutdatedError is the error of a [Plugin] whose volume is ready with the content of an
// earlier SetUp, because the new one cannot be had or not be written. Containers are
// started with the volume all the same.
type OutdatedError struct{ Err error }

// Error returns the text of the cause.
func (e *OutdatedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *OutdatedError) Unwrap() error { return e.Err }

// content is how the volumes of a type get their files.
type content struct {
	Sources
	// memory means that the files are in a file system in memory. An agent that may not mount has
	// them on disk, in a directory of its own; noDisk makes that an error.
	memory, noDisk bool
}

// setUp makes the volume ready with the files that fill adds.
func (c content) setUp(ctx context.Context, req SetUpRequest, fill func(*filler) error) (runtime.Volume, error) {
	ready := runtime.Volume{HostPath: req.Dir, ReadOnly: true, Relabel: true}
	files := newFiller(workOf(ctx))
	err := fill(files)
	if err == nil {
		err = c.place(ctx, req, files)
	}
	switch {
	case err == nil:
		return ready, nil
	case isWritten(req.Dir):
		return ready, &OutdatedError{errors.Join(err, c.complete(req))}
	default:
		return runtime.Volume{}, err
	}
}

// place brings the files of the volume to the payload.
func (c content) place(ctx context.Context, req SetUpRequest, fill *filler) error {
	nested, err := fill.work.nestedIn(req.Pod, req.Volume.Name)
	if err != nil {
		return fmt.Errorf("unable to create nested volume mountpoints: %w", err)
	}
	files, access := fill.payload, accessOf(req.Pod)
	if c.seen.same(req.Dir, files, access.gid, nested) {
		return nil
	}
	if err := c.before.step("make the volume"); err != nil {
		return err
	}
	if err := access.ensureDir(ctx, req.Dir, c.before); err != nil {
		return err
	}
	if err := c.before.step("mount the volume"); err != nil {
		return err
	}
	if c.memory && !isWritten(req.Dir) {
		err := c.ensureMemory(req, access)
		if err != nil && (c.noDisk || !errors.Is(err, syscall.EPERM) && !errors.Is(err, errors.ErrUnsupported)) {
			return err
		}
		if err != nil && c.onDisk != nil {
			c.onDisk(err)
		}
	}
	w, err := c.openWriter(req.Dir, access)
	if err != nil {
		return err
	}
	defer func() { _ = w.root.Close() }()
	for _, dir := range nested {
		if err := w.makeMountPoint(dir); err != nil {
			return fmt.Errorf("unable to create nested volume mountpoints: %w", err)
		}
	}
	state, _, _ := c.seen.state(req.Dir, files, access.gid, nested)
	changed, err := w.write(files)
	if err == nil && !changed {
		c.seen.note(req.Dir, files, access.gid, nested, state)
	}
	return err
}

// makeMountPoint makes a directory, and those above it, whatever the umask: users that are not root
// must get through. Directories of an interrupted call get their mode, too. Links are those of the
// volume's files, and are left.
func (w *writer) makeMountPoint(dir string) error {
	var done string
	for name := range strings.SplitSeq(dir, "/") {
		done = filepath.Join(done, name)
		if err := w.root.Mkdir(done, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		info, err := w.root.Lstat(done)
		if err != nil {
			return err
		}
		if !info.IsDir() || info.Mode().Perm()&0o055 == 0o055 {
			continue
		}
		if err := w.grantDir(w.root, done); err != nil {
			return err
		}
	}
	return w.root.MkdirAll(dir, 0o755) // fails if there is a file
}

// complete completes an interrupted write of the content that the volume has.
func (c content) complete(req SetUpRequest) error {
	w, err := c.openWriter(req.Dir, accessOf(req.Pod))
	if err != nil {
		return err
	}
	defer func() { _ = w.root.Close() }()
	return w.complete()
}

// allocatable returns what pods can have of the node now.
func (s Sources) allocatable() v1.ResourceList {
	if s.NodeAllocatable != nil {
		return s.NodeAllocatable()
	}
	return s.Allocatable
}

// ensureMemory mounts a file system in memory at the directory of the volume unless one is mounted.
// An agent that may not mount may have been killed while it wrote the first files of the volume to
// disk. They are removed before the mount, which would hide them until the pod ends.
func (c content) ensureMemory(req SetUpRequest, a access) error {
	return ensureMount(req.Dir, func() error {
		w, err := c.openWriter(req.Dir, a)
		if err != nil {
			return err
		}
		defer func() { _ = w.root.Close() }()
		if err := w.tidy("", nil); err != nil {
			return err
		}
		return mountTmpfs(req.Dir, memorySize(req.Pod, nil, c.allocatable()), a)
	})
}

// openWriter returns the writer of a volume. The caller closes the root.
func (c content) openWriter(dir string, a access) (*writer, error) {
	w, err := openWriter(dir, a)
	if err == nil {
		w.before = c.before
	}
	return w, err
}

// ensureDir makes the directory of a volume unless it exists.
func (a access) ensureDir(ctx context.Context, dir string, before steps) error {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return a.makeDir(ctx, dir, before)
}

// ensureTmpfs mounts a file system in memory at the directory unless one is mounted.
func ensureTmpfs(dir string, size int64, a access) error {
	return ensureMount(dir, func() error { return mountTmpfs(dir, size, a) })
}

// ensureMount calls mount unless something is mounted at the directory.
func ensureMount(dir string, mount func() error) error {
	mounted, err := isMountPoint(dir)
	if err != nil || mounted {
		return err
	}
	return mount()
}

// configMap returns the config map. If it does not exist and is optional, it is empty.
func (s Sources) configMap(ctx context.Context, namespace, name string, optional *bool) (*v1.ConfigMap, error) {
	m, err := (*v1.ConfigMap)(nil), noObject("configmap", name)
	if s.Objects != nil {
		m, err = s.Objects.ConfigMap(ctx, namespace, name)
	}
	if apierrors.IsNotFound(err) && ptr.Deref(optional, false) {
		return &v1.ConfigMap{}, nil
	}
	return m, err
}

// secret is configMap for a secret.
func (s Sources) secret(ctx context.Context, namespace, name string, optional *bool) (*v1.Secret, error) {
	o, err := (*v1.Secret)(nil), noObject("secret", name)
	if s.Objects != nil {
		o, err = s.Objects.Secret(ctx, namespace, name)
	}
	if apierrors.IsNotFound(err) && ptr.Deref(optional, false) {
		return &v1.Secret{}, nil
	}
	return o, err
}

func noObject(kind, name string) error { return apierrors.NewNotFound(v1.Resource(kind), name) }
