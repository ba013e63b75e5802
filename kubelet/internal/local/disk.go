package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// Disk implements [control.Node].
func (n Node) Disk(ctx context.Context, goal gc.ImageGoal) control.Disk {
	var d diskItems
	var errs []error
	if p := n.Parts(); p.ImageGC != nil {
		preview, err := p.ImageGC.Preview(ctx, goal)
		errs = append(errs, err)
		d.addImages(&preview)
	}
	preview, err := n.Parts().GC.Preview(ctx)
	errs = append(errs, err)
	owners := map[types.UID]string{}
	for _, pod := range n.Pods() {
		owners[pod.UID] = runtime.RefOf(pod).String()
	}
	d.addPods(ctx, &preview, owners)
	errs = append(errs, d.addDirs(n.Parts().PodsDir, n.Parts().Gone, owners), d.addFiles(ctx, n.Root))
	disk := control.Disk{Items: d}
	if err := errors.Join(errs...); err != nil {
		disk.Error = err.Error()
	}
	return disk
}

// diskItems is a list that is being made.
type diskItems []control.DiskItem

func (d *diskItems) add(item control.DiskItem, removal string) {
	if removal != "" {
		item.KeptBy, item.Removal = "", removal
	}
	*d = append(*d, item)
}

func (d *diskItems) addImages(p *gc.ImagePreview) {
	removed := map[string]string{}
	for i := range p.Plan.Remove {
		removed[p.Plan.Remove[i].ID] = string(p.Plan.Remove[i].Reason)
	}
	for i := range p.Input.Images {
		image := &p.Input.Images[i]
		d.add(control.DiskItem{Kind: "image", Name: image.Name(), Bytes: &image.Size,
			KeptBy: cmp.Or(image.KeptBy(p.Input.Policy, p.Input.Now), "there is space")}, removed[image.ID])
	}
}

// addPods adds the containers and sandboxes that do not run, and the logs of pods.
func (d *diskItems) addPods(ctx context.Context, p *gc.Preview, owners map[types.UID]string) {
	removed := map[string]string{}
	const dead = "its pod is gone, or the policy does not keep it"
	for _, c := range p.Removal.Containers {
		removed[c.ID.ID] = dead
	}
	for _, s := range p.Removal.Sandboxes {
		removed[s.ID] = dead
	}
	for _, l := range p.Removal.LogDirs {
		removed[l.Path] = "its pod is gone"
	}
	for _, pod := range p.Input.Pods {
		owners[pod.UID] = pod.PodRef.String()
		for _, c := range pod.Containers {
			kept := "it runs"
			if c.State != runtime.ContainerRunning {
				kept = "the newest instances stay while the pod is there"
			}
			d.add(control.DiskItem{Kind: "container", Name: c.ID.ID, Owner: fmt.Sprintf("container %s of pod %s",
				c.Name, pod.PodRef), KeptBy: kept}, removed[c.ID.ID])
		}
		for _, s := range pod.Sandboxes {
			d.add(control.DiskItem{Kind: "sandbox", Name: s.ID, Owner: "pod " + pod.PodRef.String(),
				KeptBy: "its pod is there"}, removed[s.ID])
		}
	}
	for _, l := range p.Input.LogDirs {
		size := treeSize(ctx, l.Path)
		kept := "its pod is there"
		if l.Gone {
			kept = fmt.Sprintf("logs of pods that are gone stay for %s", p.Input.Policy.KeepLogs)
		}
		d.add(control.DiskItem{Kind: "logs", Name: l.Path, Owner: podOwner(owners, l.UID), Bytes: &size, KeptBy: kept},
			removed[l.Path])
	}
}

func podOwner(owners map[types.UID]string, uid types.UID) string {
	return "pod " + cmp.Or(owners[uid], string(uid))
}

// addDirs adds the directories of pods. They are not measured, since there are mounts in them.
func (d *diskItems) addDirs(dir string, gone gc.Gone, owners map[types.UID]string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		uid, removal := types.UID(e.Name()), ""
		if gone(uid) {
			removal = "its pod is gone: the volumes are taken down, then the directory is removed"
		}
		d.add(control.DiskItem{Kind: "pod", Name: filepath.Join(dir, e.Name()), Owner: podOwner(owners, uid),
			KeptBy: "its pod is there"}, removal)
	}
	return err
}

// addFiles adds what else is in the root directory.
func (d *diskItems) addFiles(ctx context.Context, root string) error {
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		if slices.Contains([]string{"pods", "logs"}, e.Name()) {
			continue
		}
		item := control.DiskItem{Kind: "agent", Name: filepath.Join(root, e.Name()),
			KeptBy: "the agent, see docs/operate/disk.md"}
		if !strings.HasPrefix(e.Name(), "plugins") { // those of CSI have mounts in their directories
			size := treeSize(ctx, item.Name)
			item.Bytes = &size
		}
		d.add(item, "")
	}
	return err
}

// treeSize returns the sizes of the files below a path, as far as it comes before ctx ends. What cannot be read has
// none.
func treeSize(ctx context.Context, path string) (bytes int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return fs.SkipAll
		}
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}
