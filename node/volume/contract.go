package volume

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Manager makes the volumes of pods ready on the host and takes them down
// again. [Reconciler] is the default. podDir is the directory of the pod, the same in
// each call for a pod. The methods are idempotent, may be called after a crash at
// any point, and are safe for concurrent use by different pods. Errors name the pod
// and the volume.
type Manager interface {
	// SetUp makes the volumes that containers of the pod use, see [podspec.UsedVolumes], ready
	// and returns them by name, with their latest content. It is called at each sync of the pod. Its error joins a
	// [*SetUpError] for each volume that is not ready, and wraps [ErrUnsupported] for a type of volume that is not
	// known. A volume of the result may have an error, too: it is ready with the content of an earlier call. The pod
	// can be started if the result has all volumes that are used.
	SetUp(ctx context.Context, pod *v1.Pod, podDir string) (map[string]runtime.Volume, error)
	// SubPath makes a path inside a volume ready to be mounted and returns where it is
	// on the host. It fails if the path leads out of the volume, also by a symbolic
	// link.
	SubPath(ctx context.Context, req runtime.SubPath) (string, error)
	// Exceeded returns a message, for the eviction of the pod, if a volume exceeds its
	// size limit, and an empty one otherwise. The error is that of volumes that could not be measured.
	Exceeded(ctx context.Context, pod *v1.Pod, podDir string) (message string, err error)
	// TearDown takes down whatever was set up for the pod. The spec of the pod may be
	// gone, and ref may have a UID only. The volumes must not be in use any more. The error wraps [ErrStaged] if the
	// pod need not wait for what is left.
	TearDown(ctx context.Context, ref runtime.PodRef, podDir string) error
	// Remove does what TearDown does and removes the directory of the pod. It removes
	// nothing across a mount.
	Remove(ctx context.Context, ref runtime.PodRef, podDir string) error
	// Usage returns what the volumes of the pod use of the node's ephemeral storage, in
	// bytes: those of the types emptyDir, if it is on disk, and configMap (kubelet:
	// IsLocalEphemeralVolume). The result is valid also with an error: a volume counts with
	// what could be measured, and the result is [math.MaxInt64] if its containers have made a
	// volume so that it cannot be measured.
	Usage(ctx context.Context, pod *v1.Pod, podDir string) (int64, error)
	// VolumeStats returns the usage of the volumes of the pod, in the order of the spec. The
	// result is valid also with an error, which is that of the volumes that are missing.
	VolumeStats(ctx context.Context, pod *v1.Pod, podDir string) ([]statsv1alpha1.VolumeStats, error)
}

// SetUpError is the failure to set up one volume of a pod.
type SetUpError struct {
	Pod    runtime.PodRef
	Volume string
	Err    error
}

// Error names the pod and the volume.
func (e *SetUpError) Error() string {
	return fmt.Sprintf("volume %q of pod %s: %v", e.Volume, e.Pod, e.Err)
}

// Unwrap returns the cause.
func (e *SetUpError) Unwrap() error { return e.Err }

// Message returns kubelet's text of the event FailedMount for this volume alone, see
// [FailedMounts]. It does not name the pod.
func (e *SetUpError) Message() string {
	if unprocessed := (*processError)(nil); errors.As(e.Err, &unprocessed) {
		return unprocessedText([]string{e.Volume}, []string{e.Volume}, []string{unprocessed.Error()})
	}
	if failed := (*mountError)(nil); errors.As(e.Err, &failed) {
		return failed.Error()
	}
	return fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", e.Volume, e.Err)
}

// SetUpErrors returns the errors of single volumes that an error of
// [Manager].SetUp joins.
func SetUpErrors(err error) []*SetUpError {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself
	case *SetUpError:
		return []*SetUpError{e}
	case interface{ Unwrap() []error }:
		var all []*SetUpError
		for _, err := range e.Unwrap() {
			all = append(all, SetUpErrors(err)...)
		}
		return all
	case interface{ Unwrap() error }:
		return SetUpErrors(e.Unwrap())
	default:
		return nil
	}
}

// ErrUnsupported means that no plugin supports the type of a volume.
var ErrUnsupported = errors.New("volume type not supported")

// ErrStaged means that all volumes of a pod were taken down, except for some that only remain staged for the node. A
// later call of [Manager].TearDown or [Manager].Remove unstages them.
var ErrStaged = errors.New("volumes are still staged on the node, for no pod")

// Plugin sets up volumes of one type. The methods are idempotent and are called
// concurrently for different pods. A panic becomes an error. Package volumetest
// tests implementations.
type Plugin interface {
	// Name is the plugin's name, a qualified name such as "example.com/tarball". It
	// must stay the same over restarts of the agent, because volumes are found again
	// by it.
	Name() string
	// Supports reports whether the plugin sets up the volume.
	Supports(v *v1.Volume) bool
	// SetUp makes the volume ready and returns it. It is called again and again as
	// long as the pod runs, also after a restart of the agent, and then returns the
	// same; if Place.Dir is to be a mount point, [Place.Mounted] reports whether there is
	// nothing left to do. With an [*OutdatedError] it returns a volume that is ready, but
	// does not have its latest content.
	SetUp(ctx context.Context, req SetUpRequest) (runtime.Volume, error)
	// TearDown undoes SetUp. It is called for each volume for which SetUp was called,
	// whether or not SetUp has succeeded or the agent was restarted meanwhile, until
	// it returns nil, and possibly once more. It finds what it needs in Place.StateDir,
	// where SetUp has put it.
	//
	// Afterwards the manager unmounts what is still mounted in the two directories of
	// Place, and removes both. A plugin that only mounts has nothing to do itself.
	TearDown(ctx context.Context, req TearDownRequest) error
}

// SetUpRequest is the input of [Plugin.SetUp].
type SetUpRequest struct {
	// Pod and Volume must not be changed.
	Pod    *v1.Pod
	Volume *v1.Volume
	Place
}

// TearDownRequest is the input of [Plugin.TearDown]. There is no spec: it may be
// gone.
type TearDownRequest struct {
	// Pod may have a UID only.
	Pod runtime.PodRef
	// Volume is the volume's name in the spec.
	Volume string
	Place
}

// Place is where a volume of a pod is on disk.
type Place struct {
	// Dir is the volume's own directory, to be made or mounted to:
	// <pod dir>/volumes/<plugin>/<volume>. It does not exist unless SetUp has made it;
	// its parent does.
	Dir string
	// StateDir is a directory for what the plugin has to remember, such as the device
	// that it has attached: <pod dir>/plugins/<plugin>/<volume>. It is made before the
	// first SetUp, is not visible in containers, and stays until TearDown has
	// succeeded.
	StateDir string
	// Device is the path of the device of a block volume, a link to it: <pod dir>/volumeDevices/<plugin>/<volume>. It
	// does not exist unless a [PersistentPlugin] has made it; its parent does if the request is for a device.
	Device string
}
