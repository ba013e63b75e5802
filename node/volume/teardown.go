package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubeletkit/kubeletkit/internal/underway"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// TearDown implements [Manager]. It calls TearDown of the plugin of each
// volume that it finds on disk, then removes the volumes and unmounts what is still
// mounted there. Volumes of a plugin that is not configured any more are unmounted and
// removed, too.
//
// If a plugin fails, its volume is left as it is, the others are taken down, and the
// error joins those of all plugins that have failed. If nothing but the unstaging of volumes has failed, the error
// wraps [ErrStaged].
func (m *Reconciler) TearDown(ctx context.Context, ref runtime.PodRef, podDir string) error {
	if err := m.before.step("unmount the sub-paths"); err != nil {
		return err
	}
	// Sub-paths are mounts of their own, which keep the volumes' file systems in use.
	if err := unmountBelow(filepath.Join(podDir, subPathsDir)); err != nil {
		return fmt.Errorf("pod %s: unmounting the sub-paths of its volumes: %w", ref, err)
	}
	found, err := findVolumes(podDir)
	if err != nil {
		return fmt.Errorf("pod %s: looking for its volumes: %w", ref, err)
	}
	var (
		down []foundVolume
		errs []error
	)
	unpublished := true // the volumes that are not down are only staged
	left := map[string]int{}
	for i := range found {
		found[i].measured = m.measuredName(found[i])
		left[found[i].measured]++
	}
	delete(left, "")
	for _, v := range found {
		err := m.before.step("take down %s", v.name)
		if err == nil {
			err = m.tearDown(ctx, ref, v)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %q of pod %s: %w", v.name, ref, err))
			unpublished = unpublished && errors.Is(err, errUnstage)
			continue
		}
		down = append(down, v)
	}
	if len(errs) == 0 {
		err := m.removeVolumes(ctx, ref, podDir)
		if err == nil { // also of volumes without a trace on disk
			m.observer.Measure.Emit(PodVolumes{Pod: ref})
		}
		return err
	}
	for _, v := range down {
		if v.measured != "" {
			left[v.measured]--
		}
	}
	m.observer.Measure.Emit(PodVolumes{Pod: ref, Actual: left})
	for _, v := range down {
		err := m.before.step("remove %s", v.name)
		if err == nil {
			err = v.remove(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %q of pod %s: %w", v.name, ref, err))
			unpublished = false
		}
	}
	err = errors.Join(errs...)
	if unpublished {
		return fmt.Errorf("%w: %w", ErrStaged, err)
	}
	return err
}

// tearDown has the volume's plugin take it down, if there is such a plugin. If there is none, the
// volume is unmounted before anything of it is removed: its plugin may come back, and need it.
func (m *Reconciler) tearDown(ctx context.Context, ref runtime.PodRef, v foundVolume) error {
	i := slices.IndexFunc(m.plugins, func(p Plugin) bool { return p.Name() == v.plugin })
	if i < 0 {
		m.observer.Logger.Info("A volume's plugin is not configured; the volume is only unmounted and removed",
			"pod", ref,
			"volume", v.name, "plugin", v.plugin)
		return v.Unmount()
	}
	ctx, as := withMeasured(ctx, v.plugin)
	call := underway.Begin(ctx, "", "volume", v.name)
	defer call.End()
	p, began := m.plugins[i], time.Now()
	err := runtime.Recover(func() error {
		return p.TearDown(call, TearDownRequest{Pod: ref, Volume: v.name, Place: v.Place})
	})
	if v.measured != "" {
		m.observer.Measure.Emit(TearDownCall{as.name, time.Since(began), err})
	}
	return err
}

// measuredName returns the name of the volume's plugin in measurements. It is empty for what is remembered of the claim
// of a volume that another plugin sets up: that volume is found, too.
func (m *Reconciler) measuredName(v foundVolume) string {
	if v.plugin == (Claim{}).Name() {
		if bound, ok := readBound(filepath.Join(v.StateDir, boundFile)); ok && bound.Volume != nil {
			return ""
		}
	}
	if of := m.persistentPlugin(v.plugin); of.PersistentPlugin != nil {
		if key, err := of.Find(v.Place); err == nil && key != "" {
			return measuredName(of.PersistentPlugin, key)
		}
	}
	return v.plugin
}

// removeVolumes unmounts and removes what is left of the pod's volumes. What the
// plugins remember goes last, so that they are called again if this fails.
func (m *Reconciler) removeVolumes(ctx context.Context, ref runtime.PodRef, podDir string) error {
	for _, sub := range []string{volumesDir, devicesDir, subPathsDir, stateDir} {
		if err := m.before.step("remove %s", sub); err != nil {
			return err
		}
		if err := removeMounted(ctx, filepath.Join(podDir, sub)); err != nil {
			return fmt.Errorf("pod %s: removing its volumes: %w", ref, err)
		}
	}
	return nil
}

// Remove implements [Manager].
func (m *Reconciler) Remove(ctx context.Context, ref runtime.PodRef, podDir string) error {
	if err := m.TearDown(ctx, ref, podDir); err != nil {
		return err
	}
	if err := m.before.step("remove the directory"); err != nil {
		return err
	}
	if err := removeMounted(ctx, podDir); err != nil {
		return fmt.Errorf("pod %s: removing its directory: %w", ref, err)
	}
	return nil
}

// foundVolume is a volume that was found on disk.
type foundVolume struct {
	plugin, name string
	Place
	// measured is the name of the plugin in measurements.
	measured string
}

// remove unmounts and removes the volume.
func (v foundVolume) remove(ctx context.Context) error {
	if err := v.Unmount(); err != nil {
		return err
	}
	if err := unmountBelow(v.StateDir); err != nil { // a plugin may have mounted there, too
		return err
	}
	if err := removeAll(ctx, v.Dir); err != nil {
		return err
	}
	if err := os.Remove(v.Device); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return removeAll(ctx, v.StateDir)
}

// findVolumes returns the volumes of which there is a trace below the pod's
// directory, in the order of their names.
func findVolumes(podDir string) ([]foundVolume, error) {
	var found []foundVolume
	for _, top := range []string{volumesDir, devicesDir, stateDir} {
		plugins, err := subdirs(filepath.Join(podDir, top))
		if err != nil {
			return nil, err
		}
		for _, escaped := range plugins {
			names, err := entriesOf(filepath.Join(podDir, top, escaped), func(e fs.DirEntry) bool {
				return e.IsDir() || top == devicesDir // a device is a link
			})
			if err != nil {
				return nil, err
			}
			plugin := strings.ReplaceAll(escaped, "~", "/")
			for _, name := range names {
				found = append(found, foundVolume{plugin: plugin, name: name, Place: PlaceOf(podDir, plugin, name)})
			}
		}
	}
	slices.SortFunc(found, func(a, b foundVolume) int {
		return strings.Compare(a.plugin+"\n"+a.name, b.plugin+"\n"+b.name)
	})
	return slices.Compact(found), nil
}

// subdirs returns the names of the directories in dir, without those that begin with
// a dot: no volume has such a name. They are not looked into, as they may be mount
// points of file systems that do not answer.
func subdirs(dir string) ([]string, error) { return entriesOf(dir, fs.DirEntry.IsDir) }

// entriesOf is subdirs for the entries that match.
func entriesOf(dir string, match func(fs.DirEntry) bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if match(e) && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
