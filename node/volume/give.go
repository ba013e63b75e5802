package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// give gives a local volume to the fsGroup of the pod, as its change policy says (kubelet:
// SetVolumeOwnership). A volume of the host keeps its owners, and so does one that another pod has:
// then there is a warning if it is of another group. The path of the volume is locked.
func (p Claim) give(ctx context.Context, req SetUpRequest, b boundVolume) error {
	a := accessOf(req.Pod)
	if !b.Local || a.gid < 0 {
		return nil
	}
	others, err := othersHave(req.StateDir, b.Path)
	if err != nil {
		return err
	}
	info, err := os.Stat(b.Path)
	if err != nil {
		return err
	}
	switch gid, ok := groupOf(info); {
	case others && ok && gid != a.gid:
		p.event.Emit(runtime.Event{Pod: runtime.RefOf(req.Pod), Type: v1.EventTypeWarning,
			Reason: "AlreadyMountedVolume", Message: fmt.Sprintf(
				"The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.",
				a.gid, b.Name, gid)})
		return nil
	case others || b.ReadOnly:
		return nil
	}
	if keepsFiles(req.Pod, info, a.gid) {
		return nil
	}
	return giveFiles(ctx, req.Pod, b.Path, a.gid, p.event)
}

// keepsFiles reports whether the files of a volume stay as they are, since the volume belongs to the fsGroup of the
// pod, and the change policy is OnRootMismatch.
func keepsFiles(pod *v1.Pod, root fs.FileInfo, gid int) bool {
	policy := pod.Spec.SecurityContext.FSGroupChangePolicy
	return policy != nil && *policy == v1.FSGroupChangeOnRootMismatch && belongsTo(root, gid) &&
		root.Mode()&fs.ModeSetgid != 0 && root.Mode().Perm()&0o770 == 0o770
}

// giveFiles gives all files of a volume to a group, with events if that takes long.
func giveFiles(ctx context.Context, pod *v1.Pod, dir string, gid int, event runtime.EventFunc) error {
	var files atomic.Int64
	defer watchGiving(dir, &files, func(message string) {
		event.Emit(runtime.Event{Pod: runtime.RefOf(pod), Type: v1.EventTypeWarning,
			Reason: "VolumePermissionChangeInProgress", Message: message})
	})()
	return giveTree(ctx, dir, gid, &files)
}

// When the first and each further event say that a volume is being given to a group (kubelet:
// firstEventReportDuration, progressReportDuration).
const (
	firstGiving = 30 * time.Second
	nextGiving  = time.Minute
)

// watchGiving calls emit when it takes long to give the volume to a group, until stop is called. emit is not called
// after that.
func watchGiving(dir string, files *atomic.Int64, emit func(message string)) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		message := fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, consider using "+
			"OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"+
			"#configure-volume-permission-and-ownership-change-policy-for-pods", dir)
		for after := firstGiving; ; after = nextGiving {
			select {
			case <-ended:
				return
			case <-time.After(after):
			}
			if after == nextGiving {
				message = fmt.Sprintf("Setting volume ownership for %s, processed %d files.", dir, files.Load())
			}
			emit(message)
		}
	}()
	return func() { close(ended); <-done }
}

// othersHave reports whether another pod than that of the state directory has the local volume at
// the path: it was set up for the pod, and not taken down yet.
func othersHave(stateDir, path string) (bool, error) {
	ofPlugin := filepath.Dir(stateDir)
	podDir := filepath.Dir(filepath.Dir(ofPlugin))
	pods, err := os.ReadDir(filepath.Dir(podDir))
	if err != nil {
		return false, err
	}
	for _, pod := range pods {
		if pod.Name() == filepath.Base(podDir) {
			continue
		}
		claims := filepath.Join(filepath.Dir(podDir), pod.Name(), filepath.Base(filepath.Dir(ofPlugin)),
			filepath.Base(ofPlugin))
		volumes, err := os.ReadDir(claims)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return false, err
		}
		for _, v := range volumes {
			b, found := readBound(filepath.Join(claims, v.Name(), boundFile))
			if found && !b.Host && filepath.Clean(b.Path) == filepath.Clean(path) {
				return true, nil
			}
		}
	}
	return false, nil
}

// lockPath waits until no other call has the path, or until ctx ends. Without locks there is none to wait for.
func lockPath(ctx context.Context, locks *flow.Locks, path string) (unlock func(), err error) {
	if locks == nil {
		return func() {}, nil
	}
	return locks.Lock(ctx, filepath.Clean(path))
}

// belongsTo reports whether the group of the file is gid.
func belongsTo(info fs.FileInfo, gid int) bool {
	group, ok := groupOf(info)
	return ok && group == gid
}
