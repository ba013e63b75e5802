package cri

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// imageUses keeps images from being removed while containers are made from them. The zero
// value is ready to use.
//
// A start opens a lease before it looks for its image. When it has found the image, or
// pulled it, it holds the ID; while it does, remove refuses that ID. A removal can end
// between the look and the hold. Then hold reports that the start has to look again; the
// image cannot be removed any more then. The name in a spec and the ID of an image are
// never compared, as any name can come to mean any image.
//
// The container that is made in the meantime is missing in a list that was made before.
// So remove also refuses an ID that was held after the list began.
type imageUses struct {
	mu sync.Mutex
	// seq is the mark of the last event: the begin of a list, or the end of a hold.
	seq runtime.Mark
	// leases are those that are open.
	leases map[*imageLease]struct{}
	// images has the images that were used in this process, by their ID. An image that a
	// list does not show is dropped. Beyond maxImagesUsed, some are dropped without a list:
	// nobody lists images if they are not collected.
	images map[string]*imageUsed
	// dropped is the greatest imageUsed.until of those that were dropped without a list.
	dropped runtime.Mark
	// listedNames has the names of the images of the last list, by ID. They are those of the
	// list and not copied.
	listedNames map[string][][]string
	// removed has when images were removed, by their full names. Beyond maxImagesUsed, all
	// are dropped.
	removed map[string]time.Time
}

// maxImagesUsed is the number of images of which the uses are kept, many more than a node has.
const maxImagesUsed = 10_000

// imageUsed is guarded by imageUses.mu.
type imageUsed struct {
	// holds counts the pods that hold the image.
	holds map[runtime.PodRef]int
	// until is the mark at which the last hold ended.
	until runtime.Mark
	// last is the time of the last begin or end of a use.
	last time.Time
	// removing is closed at the end of a removal; nil while there is none.
	removing chan struct{}
}

// imageLease is the lease of one start. It is used by one goroutine at a time.
type imageLease struct {
	uses *imageUses
	pod  runtime.PodRef

	// Guarded by uses.mu.

	// removed has the images that were removed since the lease was opened.
	removed map[string]bool
	// held has the images that it holds.
	held map[string]bool
}

// lease opens a lease for an image of the pod. close must be called when the container
// exists or will not be made.
func (u *imageUses) lease(pod runtime.PodRef) *imageLease {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := &imageLease{uses: u, pod: pod, removed: map[string]bool{}, held: map[string]bool{}}
	if u.leases == nil {
		u.leases = map[*imageLease]struct{}{}
	}
	u.leases[l] = struct{}{}
	return l
}

// of returns the entry of an image; mu is held.
func (u *imageUses) of(id string) *imageUsed {
	if u.images == nil {
		u.images = map[string]*imageUsed{}
	}
	i := u.images[id]
	if i == nil {
		if len(u.images) >= maxImagesUsed {
			u.makeRoom()
		}
		i = &imageUsed{holds: map[runtime.PodRef]int{}}
		u.images[id] = i
	}
	return i
}

// makeRoom drops the half of the images whose last use is the longest ago, except for those
// that are held or removed at the moment; mu is held.
func (u *imageUses) makeRoom() {
	ids := slices.SortedFunc(maps.Keys(u.images),
		func(a, b string) int { return u.images[a].last.Compare(u.images[b].last) })
	for _, id := range ids[:len(ids)/2] {
		if i := u.images[id]; len(i.holds) == 0 && i.removing == nil {
			u.dropped = max(u.dropped, i.until)
			delete(u.images, id)
		}
	}
}

// hold keeps the image from being removed until the lease is closed. It waits for a
// removal of that image that is under way. It reports whether the image may have been
// removed since the lease was opened or hold was called last, so that it has to be looked
// for again.
func (l *imageLease) hold(ctx context.Context, id string) (again bool, err error) {
	u := l.uses
	u.mu.Lock()
	defer u.mu.Unlock()
	for {
		i := u.of(id)
		if i.removing == nil {
			break
		}
		ended := i.removing
		u.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
		}
		u.mu.Lock()
		if ctx.Err() != nil {
			return false, fmt.Errorf("pod %s: waiting for the end of the removal of image %s: %w", l.pod, id, ctx.Err())
		}
	}
	i := u.of(id)
	if !l.held[id] {
		l.held[id] = true
		i.holds[l.pod]++
	}
	i.last = time.Now()
	again = l.removed[id]
	delete(l.removed, id)
	return again, nil
}

// lost reports whether any image may have been removed since the lease was opened or lost
// was called last.
func (l *imageLease) lost() bool {
	l.uses.mu.Lock()
	defer l.uses.mu.Unlock()
	lost := len(l.removed) > 0
	clear(l.removed)
	return lost
}

// close ends all holds of the lease.
func (l *imageLease) close() {
	u := l.uses
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.leases, l)
	u.seq++
	for id := range l.held {
		i := u.of(id)
		if i.holds[l.pod]--; i.holds[l.pod] <= 0 {
			delete(i.holds, l.pod)
		}
		i.until, i.last = u.seq, time.Now()
	}
	l.held = nil
}

// listing returns the mark for a list that is about to be made.
func (u *imageUses) listing() runtime.Mark {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seq++
	return u.seq
}

// listed adds the holds and times of use to the images of a complete list, and drops what
// is known of images that are gone.
func (u *imageUses) listed(list *runtime.ImageList) {
	u.mu.Lock()
	defer u.mu.Unlock()
	there := make(map[string]bool, len(list.Images))
	u.listedNames = make(map[string][][]string, len(list.Images))
	for n := range list.Images {
		image := &list.Images[n]
		there[image.ID] = true
		u.listedNames[image.ID] = [][]string{image.Tags, image.Digests}
		i := u.images[image.ID]
		if i == nil {
			continue
		}
		image.LastUsed = i.last
		for pod := range i.holds {
			image.UsedBy = append(image.UsedBy, runtime.ImageUse{Pod: pod})
		}
	}
	for id, i := range u.images {
		if !there[id] && len(i.holds) == 0 && i.removing == nil && i.until < list.Mark {
			delete(u.images, id)
		}
	}
}

// ended records that a container of the image has ended.
func (u *imageUses) ended(id string, at time.Time) {
	if id == "" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := u.of(id); at.After(i.last) {
		i.last = at
	}
}

// remove calls f unless the image is held, or was held after the mark. While f runs, the
// image cannot be held. Another removal of the image that is under way is waited for.
func (u *imageUses) remove(ctx context.Context, id string, listed runtime.Mark, f func() error) error {
	u.mu.Lock()
	i := u.of(id)
	for i.removing != nil {
		ended := i.removing
		u.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return fmt.Errorf("removing image %s: %w", id, ctx.Err())
		}
		u.mu.Lock()
		i = u.of(id)
	}
	if len(i.holds) > 0 || max(i.until, u.dropped) > listed {
		u.mu.Unlock()
		return fmt.Errorf("image %s: %w", id, runtime.ErrImageInUse)
	}
	i.removing = make(chan struct{})
	u.mu.Unlock()

	gone := false
	defer func() { // also if f panics
		u.mu.Lock()
		defer u.mu.Unlock()
		for l := range u.leases { // also if f has failed: it may have removed the image
			l.removed[id] = true
		}
		close(i.removing)
		i.removing = nil
		if gone {
			u.noteRemoved(id)
		}
	}()
	err := f()
	gone = err == nil
	return err
}

// noteRemoved records the names of an image that was removed; mu is held.
func (u *imageUses) noteRemoved(id string) {
	if u.removed == nil || len(u.removed) >= maxImagesUsed {
		u.removed = map[string]time.Time{}
	}
	for _, names := range u.listedNames[id] {
		for _, name := range names {
			if parsed, err := podspec.ParseImageName(name); err == nil {
				u.removed[parsed.FullName] = time.Now()
			}
		}
	}
	delete(u.listedNames, id)
}

// removedAt returns when the image of the name was removed. It is zero if it was not, or has been pulled since.
func (u *imageUses) removedAt(name string) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.removed[name]
}

// pulled records that the image of the name is there again.
func (u *imageUses) pulled(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.removed, name)
}
