package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/examples/minikubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/gc"
)

// images prints the table of the images.
func (c *call) images(ctx context.Context) error {
	if len(c.args) > 0 {
		return c.misused(fmt.Sprintf("unexpected argument %q", c.args[0]))
	}
	p, err := c.client.images(ctx, gc.AllUnusedImages)
	if err != nil {
		return err
	}
	_, err = io.WriteString(c.Out, imageTable(p))
	return err
}

// gc prints what a collection of images would remove, or has removed.
func (c *call) gc(ctx context.Context) error {
	if len(c.args) > 0 {
		return c.misused(fmt.Sprintf("unexpected argument %q", c.args[0]))
	}
	goal := gc.ImagesToThresholds
	if c.all {
		goal = gc.AllUnusedImages
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
		fmt.Fprintln(c.Out, "No image was removed; minikubelet images shows what keeps them.")
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

// imageTable returns a table of the images, sorted by name.
func imageTable(p gc.ImagePreview) string {
	images := slices.Clone(p.Input.Images)
	slices.SortFunc(images, func(a, b gc.Image) int { return strings.Compare(a.Name(), b.Name()) })
	return table(func(w io.Writer) {
		fmt.Fprintln(w, "IMAGE\tSIZE\tAGE\tLAST USED\tKEPT BY")
		for i := range images {
			kept := images[i].KeptBy(p.Input.Policy, p.Input.Now)
			if kept == "" {
				kept = "-"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", terminal.Escape(images[i].Name()), bytes(images[i].Size),
				duration.HumanDuration(p.Input.Now.Sub(images[i].FirstSeen)), lastUse(&images[i], p.Input.Now), terminal.Escape(kept))
		}
	})
}

// planTable returns what a collection would do, in the order of the removals.
func planTable(p gc.ImagePreview) string {
	var text string
	in := &p.Input
	if in.Fs.CapacityBytes > 0 {
		text = fmt.Sprintf("The file system of images, %s, is used to %d%% of %s; the thresholds are %d%% and %d%%.\n", terminal.Escape(in.Fs.Mountpoint),
			in.UsagePercent(), bytes(in.Fs.CapacityBytes), in.Policy.HighThresholdPercent, in.Policy.LowThresholdPercent)
	}
	if len(p.Plan.Remove) == 0 {
		return text + "No image would be removed.\n"
	}
	return text + table(func(w io.Writer) {
		fmt.Fprintln(w, "IMAGE\tSIZE\tLAST USED\tWHY")
		for i := range p.Plan.Remove {
			r := &p.Plan.Remove[i]
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", terminal.Escape(r.Name()), bytes(r.Size), lastUse(&r.Image, in.Now), why(r, in))
		}
	})
}

func table(write func(w io.Writer)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 3, ' ', 0)
	write(w)
	_ = w.Flush()
	return b.String()
}

// why returns the reason of a removal in words.
func why(r *gc.ImageRemoval, in *gc.ImageInput) string {
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
