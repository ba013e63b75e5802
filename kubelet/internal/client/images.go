package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeletkit/kubeletkit/gc"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// imagesCommand is the command images.
func imagesCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "images", Short: "list the images, and what keeps them", GroupID: GroupNode,
		Long:    "With -o wide and in JSON there are the pods that use an image.",
		Example: "  minikubelet images -o wide",
	}, (*call).images, sortFlag("age, name, size, used (the latest first), or a field"), (*call).watchFlag,
		(*call).outputFlag)
}

// gcCommand is the command gc.
func gcCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "gc", Short: "remove images that no pod uses, as the agent does by itself", GroupID: GroupNode,
		Long: "Images are removed if the file system that they are in has reached the high threshold, or if they " +
			"are too old. " +
			"Those that are pinned, used by a container or young stay in any case.",
		Example: "  minikubelet gc --dry-run\n  minikubelet gc --dry-run -o json  # what is on the disk, and whose it is",
	}, (*call).gc, (*call).gcFlags, (*call).outputFlag)
}

func (c *call) gcFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&c.dryRun, "dry-run", false, "only show what would be removed, and why")
	fs.BoolVar(&c.all, "all", false, "remove all images that nothing keeps, whatever space there is")
}

// Image is an image as commands print it in JSON, and the page shows it.
type Image struct {
	ID        string     `json:"id"`
	Tags      []string   `json:"tags,omitempty"`
	Digests   []string   `json:"digests,omitempty"`
	Size      int64      `json:"size"` // bytes
	FirstSeen time.Time  `json:"firstSeen"`
	LastUsed  *time.Time `json:"lastUsed,omitempty"`
	KeptBy    string     `json:"keptBy,omitempty"`
	// UsedBy are the pods with containers of the image, as "namespace/name".
	UsedBy []string `json:"usedBy,omitempty"`
}

// images prints the list of the images, sorted by name.
func (c *call) images(ctx context.Context) error {
	if err := c.noArgs(); err != nil {
		return err
	}
	list := c.printer(columns("IMAGE", "SIZE", "AGE", "LAST USED", "KEPT BY", "|", "USED BY", "ID"))
	return watchItems(ctx, c, list, "images", func() (found []item, _ any, _ error) {
		p, err := c.client.images(ctx, gc.AllUnusedImages)
		if err != nil {
			return nil, nil, err
		}
		pods, err := c.client.pods(ctx)
		if err != nil {
			return nil, nil, err
		}
		images := slices.Clone(p.Input.Images)
		slices.SortFunc(images, func(a, b gc.Image) int { return strings.Compare(a.Name(), b.Name()) })
		if err := sortItems(c, images, imageOrders()); err != nil {
			return nil, nil, err
		}
		values := items[Image]{Items: []Image{}}
		for i := range images {
			value := ImageOf(&images[i], &p.Input, pods)
			values.Items = append(values.Items, value)
			found = append(found, imageItem(&images[i], value, p.Input.Now))
		}
		return found, values, nil
	})
}

func imageItem(image *gc.Image, value Image, now time.Time) item {
	name, keptBy := terminal.Escape(image.Name()), terminal.Escape(cmp.Or(value.KeptBy, "-"))
	usedBy := terminal.Escape(cmp.Or(strings.Join(value.UsedBy, ", "), "-"))
	keeper := keptBy
	if len(image.UsedBy) > 0 { // the first of them may be another one each time
		keeper = "used"
	}
	cells := []string{name, sizeOf(image), duration.HumanDuration(now.Sub(image.FirstSeen)), lastUse(image, now),
		keptBy, usedBy, terminal.Escape(image.ID)}
	return item{key: image.ID, name: name, value: value, cells: cells,
		is:   strings.Join([]string{name, keeper, usedBy}, "\n"),
		gone: func() []string { return slices.Concat(cells[:4], []string{"gone"}, cells[5:]) }}
}

// ImageOf returns an image with what keeps it, and with those of the pods that use it.
func ImageOf(image *gc.Image, in *gc.ImageInput, pods []*v1.Pod) Image {
	value := Image{ID: image.ID, Tags: image.Tags, Digests: image.Digests, Size: image.Size,
		FirstSeen: image.FirstSeen, KeptBy: image.KeptBy(in.Policy, in.Now), UsedBy: usersOf(image, pods)}
	if !image.LastUsed.IsZero() {
		value.LastUsed = &image.LastUsed
	}
	return value
}

// usersOf returns the pods with containers of the image.
func usersOf(image *gc.Image, pods []*v1.Pod) (users []string) {
	names := slices.Concat(image.Tags, image.Digests, []string{image.ID})
	for _, pod := range terminal.SortPods(pods) {
		for s := range podspec.Statuses(&pod.Status) {
			if s.ImageID != "" && slices.Contains(names, s.ImageID) || slices.Contains(names, s.Image) {
				users = append(users, pod.Namespace+"/"+pod.Name)
				break
			}
		}
	}
	return users
}

// imageOrders are what images are sorted by.
func imageOrders() map[string]func(gc.Image) order {
	return map[string]func(gc.Image) order{
		"name": func(i gc.Image) order { return order{text: i.Name()} },
		"size": func(i gc.Image) order { return order{number: float64(i.Size)} },
		"age":  func(i gc.Image) order { return order{number: -float64(i.FirstSeen.Unix())} },
		"used": func(i gc.Image) order { return order{number: -float64(i.LastUsed.Unix())} },
	}
}

// gc prints what a collection of images would remove, or has removed.
func (c *call) gc(ctx context.Context) error {
	if err := c.noArgs(); err != nil {
		return err
	}
	goal := gc.ImagesToThresholds
	if c.all {
		goal = gc.AllUnusedImages
	}
	if c.dryRun && c.output.structured() {
		disk, err := request[control.Disk](ctx, c.client, http.MethodGet, control.DiskPath, goal)
		if err != nil {
			return err
		}
		return c.printer(columns("KIND")).end(disk)
	}
	if c.dryRun {
		p, err := c.client.images(ctx, goal)
		if err != nil {
			return err
		}
		_, err = io.WriteString(c.Out, planTable(p))
		return err
	}
	done, err := c.client.collectImages(ctx, goal)
	if err != nil {
		return err
	}
	for i := range done.Removed {
		fmt.Fprintf(c.Out, "removed %s (%s)\n", terminal.Escape(done.Removed[i].Name()), bytes(done.Removed[i].Size))
	}
	if done.Error != "" {
		return errors.New(done.Error)
	}
	if len(done.Removed) == 0 {
		fmt.Fprintf(c.Out, "No image was removed; %s images shows what keeps them.\n", c.Program)
	}
	return nil
}

// images returns the images, and what a collection would remove.
func (c *client) images(ctx context.Context, goal gc.ImageGoal) (gc.ImagePreview, error) {
	return request[gc.ImagePreview](ctx, c, http.MethodGet, control.ImagesPath, goal)
}

// collectImages makes a collection of images.
func (c *client) collectImages(ctx context.Context, goal gc.ImageGoal) (control.Collected, error) {
	return request[control.Collected](ctx, c, http.MethodPost, control.ImageGCPath, goal)
}

// request decodes the answer to a request about images.
func request[T any](ctx context.Context, c *client, method, path string, goal gc.ImageGoal) (out T, err error) {
	resp, err := c.do(ctx, method, path, url.Values{"goal": {string(goal)}})
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("reading the agent's answer about images: %w", err)
	}
	return out, nil
}

// planTable returns what a collection would do, in the order of the removals.
func planTable(p gc.ImagePreview) string {
	var text string
	in := &p.Input
	if in.Fs.CapacityBytes > 0 {
		thresholds := fmt.Sprintf("the thresholds are %d%% and %d%%", in.Policy.HighThresholdPercent,
			in.Policy.LowThresholdPercent)
		if in.Policy.HighThresholdPercent >= 100 {
			thresholds = "images are not removed for space"
		}
		text = fmt.Sprintf("The file system of images, %s, is used to %d%% of %s; %s.\n",
			terminal.Escape(in.Fs.Mountpoint),
			in.UsagePercent(), bytes(in.Fs.CapacityBytes), thresholds)
	}
	if len(p.Plan.Remove) == 0 {
		return text + "No image would be removed.\n"
	}
	var b strings.Builder
	list := &printer{out: &b, columns: columns("IMAGE", "SIZE", "LAST USED", "WHY")}
	for i := range p.Plan.Remove {
		r := &p.Plan.Remove[i]
		_ = list.row("", terminal.Escape(r.Name()), bytes(r.Size), lastUse(&r.Image, in.Now), whyRemoved(r, in))
	}
	_ = list.flush()
	return text + b.String()
}

// whyRemoved returns the reason of a removal in words.
func whyRemoved(r *gc.ImageRemoval, in *gc.ImageInput) string {
	switch {
	case r.Reason == gc.ImageForAge:
		return fmt.Sprintf("not used for longer than %s", in.Policy.MaxAge)
	case in.Goal == gc.AllUnusedImages:
		return "nothing keeps it"
	default:
		return fmt.Sprintf("space: usage has reached %d%%", in.Policy.HighThresholdPercent)
	}
}

// lastUse returns the time since the last use of an image.
func lastUse(i *gc.Image, now time.Time) string {
	switch {
	case i.LastUsed.IsZero():
		return "never"
	case !i.LastUsed.Before(now):
		return "now"
	default:
		return duration.HumanDuration(now.Sub(i.LastUsed)) + " ago"
	}
}

// sizeOf returns the size of an image; "-" if it takes no space, because containers are processes of the machine.
func sizeOf(image *gc.Image) string {
	if image.Size == 0 {
		return "-"
	}
	return bytes(image.Size)
}

// bytes returns a size for people.
func bytes(n int64) string {
	size, unit := float64(n), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for size >= 1024 && unit < len(units)-1 {
		size /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, units[unit])
}
