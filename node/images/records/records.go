package records

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/logging"
)

// Options are the settings of [Records]. The zero value is kubelet's default.
type Options struct {
	// Policy says for which images credentials are verified. Default: [NeverVerifyPreloadedImages].
	Policy Policy
	// Allowlist has the images that the policy [NeverVerifyAllowlistedImages] permits (kubelet's
	// preloadedImagesVerificationAllowlist): names as pods have them, without tag and digest, such as
	// "registry.example/team/app", or beginnings of names, such as "registry.example/team/*".
	Allowlist []string
	// Logger is for problems that no method returns. Default: that of package slog.
	Logger logr.Logger
}

// Records has the credentials with which the images of a node were pulled. Make one with [New]. It is safe for
// concurrent use. It starts no goroutine.
type Records struct {
	opts Options
	rule rule
	// pulling and pulled are the directories of intents and records.
	pulling, pulled string
	// busy has a lock for each file that is read or written.
	busy keyedLocks
	// loading is held while the directories are listed.
	loading sync.Mutex

	// mu guards the fields below. Nothing is read, written or called under it.
	mu     sync.RWMutex
	loaded bool
	// loadErr is why the directories could not be listed last.
	loadErr string
	// entries has one entry for each record, by the name of its file.
	entries map[string]entry
	// intents are those of images, as pods have them.
	intents map[string]intent
	// names has the number of intents, by the full name of the image, and by its repository if it has no digest.
	names map[string]int
	// damaged has the names of files of intents that cannot be read.
	damaged map[string]struct{}
	// preloaded has the images that were in the last list and that the agent has not pulled, by the name of the file
	// that a record would have. An image with this ID may be used also while it is pulled: the pull brings nothing new.
	preloaded map[string]struct{}
}

// entry is a record.
type entry struct {
	// record is nil while the file is not read, or cannot be.
	record *recordFile
	// changed is when this process has changed the record; zero if it has not.
	changed time.Time
	// unsaved means that the file differs from the record.
	unsaved bool
	// logged means that the file cannot be read, and that this was logged.
	logged bool
}

// intent is an image that is being pulled, or was.
type intent struct {
	// pulls is the number of pulls that this process makes.
	pulls int
	// open is not zero if the outcome of another pull is not known: it is the time of its end. The next list of images
	// decides.
	open time.Time
	// late means that a pull of this process was cut off: a list that is older than open does not show what came of it.
	late bool
}

// New returns the records in the directory "image_manager" of a root directory; that of kubelet is /var/lib/kubelet. It
// reads nothing. Its error names the options that are wrong.
func New(rootDir string, opts Options) (*Records, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	opts.Policy = cmp.Or(opts.Policy, NeverVerifyPreloadedImages)
	r, err := newRule(opts.Policy, opts.Allowlist)
	if rootDir == "" {
		err = errors.Join(errors.New("the root directory is empty"), err)
	}
	if err != nil {
		return nil, fmt.Errorf("verification of image credentials: %w", err)
	}
	dir := filepath.Join(rootDir, "image_manager")
	return &Records{
		opts: opts, rule: r, pulling: filepath.Join(dir, "pulling"), pulled: filepath.Join(dir, "pulled"),
		entries: map[string]entry{}, intents: map[string]intent{}, names: map[string]int{},
		damaged: map[string]struct{}{},
	}, nil
}

// Intend records that the image will be pulled. image is the image as the pod has it. Call it before each pull, and
// then one of Pulled, Failed and Unknown. If it returns an error, the image must not be pulled: other pods could use it
// without a credential if the agent were killed before the end of the pull.
func (r *Records) Intend(image string) error {
	err := r.load()
	if err == nil {
		err = r.intend(image)
	}
	if err != nil {
		return fmt.Errorf("recording that image %q is pulled: %w", image, err)
	}
	return nil
}

func (r *Records) intend(image string) error {
	name := fileName(image)
	unlock := r.busy.lock(name)
	defer unlock()
	if r.intentOf(image) == (intent{}) {
		data, err := encodeIntent(image)
		if err != nil {
			return err
		}
		if err := save(r.pulling, name, data); err != nil {
			return err
		}
	}
	r.setIntent(image, func(i *intent) { i.pulls++ })
	return nil
}

// Pulled records that the image was pulled with the credential. ref is its ID in the runtime. The pod with the
// credential may use the image also if an error is returned: it is that of the file, which is written again when the
// next list of images arrives. Until then, the image stays recorded as one that was pulled.
func (r *Records) Pulled(image, ref string, c Credential) error {
	err := r.record(image, ref, c.allows())
	if err == nil {
		r.end(image, false, false)
		return nil
	}
	r.end(image, true, false)
	return fmt.Errorf("recording the pull of image %q: %w", image, err)
}

// Failed records that the runtime has not pulled the image.
func (r *Records) Failed(image string) { r.end(image, false, false) }

// Unknown records the end of a pull of which it is not known whether the runtime has pulled the image. Until a list of
// images shows that, it counts as pulled.
func (r *Records) Unknown(image string) { r.end(image, true, true) }

// end ends a pull. open means that a list of images decides about the intent, and late that the runtime may have pulled
// the image after the list.
func (r *Records) end(image string, open, late bool) {
	name := fileName(image)
	unlock := r.busy.lock(name)
	i := r.intentOf(image)
	var err error
	switch {
	case i.pulls == 0: // of no Intend
	case open:
		r.setIntent(image, func(i *intent) { i.pulls--; i.open, i.late = time.Now(), i.late || late })
	case i.pulls == 1 && i.open.IsZero():
		if err = remove(r.pulling, name); err != nil {
			r.setIntent(image, func(i *intent) { i.pulls--; i.open = time.Now() })
			break
		}
		fallthrough
	default:
		r.setIntent(image, func(i *intent) { i.pulls-- })
	}
	unlock()
	if err != nil {
		r.opts.Logger.Error(err, "The intent to pull an image cannot be removed; the image counts as pulled",
			"image", image)
	}
}

// intentOf returns the intent of an image, or the zero value.
func (r *Records) intentOf(image string) intent {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.intents[image]
}

// setIntent changes the intent of an image.
func (r *Records) setIntent(image string, change func(*intent)) {
	keys := []string{fullName(image)}
	if repository, byDigest := repositoryOf(image); !byDigest && repository != keys[0] {
		keys = append(keys, repository)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.intents[image]
	i := before
	change(&i)
	if name := fileName(image); i != before && has(r.damaged, name) {
		// the file was written again; what it stood for is still not known
		delete(r.damaged, name)
		i.open = time.Now()
	}
	switch {
	case i == before:
	case i == intent{}:
		delete(r.intents, image)
		for _, key := range keys {
			if r.names[key]--; r.names[key] == 0 {
				delete(r.names, key)
			}
		}
	default:
		r.intents[image] = i
		if (before == intent{}) {
			for _, key := range keys {
				r.names[key]++
			}
		}
	}
}

// Decide decides whether a pod may use an image that is present without a pull. image is the image as the pod has it,
// ref its ID in the runtime. credentials returns the credentials of the pod that a pull would use; it is called only if
// they decide, not under a lock. If it fails, its error is returned with [Undecided].
func (r *Records) Decide(image, ref string, credentials func() ([]Credential, error)) (Decision, error) {
	switch {
	case ref == "":
		return MustPull, nil
	case r.rule.permits(image):
		return AllowedByPolicy, nil
	case r.load() != nil: // it is logged
		return Undecided, nil
	}
	record, pulled := r.find(image, ref)
	switch {
	case !pulled && r.rule.policy == NeverVerifyPreloadedImages:
		return AllowedByPolicy, nil
	case record == nil && r.isDamaged(image, ref):
		return Undecided, nil
	case record == nil:
		return MustPull, nil
	}
	name, err := nameOf(image)
	if err != nil {
		return Undecided, nil // no pull succeeds
	}
	who := record.Credentials[name]
	switch {
	case who.NodePods:
		return AllowedByRecord, nil
	case who.empty():
		return MustPull, nil
	}
	list, err := credentials()
	if err != nil {
		return Undecided, err
	}
	ok, add := who.match(list)
	if add != nil {
		r.recordMatch(image, ref, add)
	}
	if !ok {
		return MustPull, nil
	}
	return AllowedByRecord, nil
}

// Counts returns the numbers of intents and of records, which are files.
func (r *Records) Counts() (intents, records int) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.intents) + len(r.damaged), len(r.entries)
}

// isDamaged reports whether the record of an image, or an intent to pull it, cannot be read.
func (r *Records) isDamaged(image, ref string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.entries[fileName(ref)].logged || has(r.damaged, fileName(image))
}

// recordMatch records a secret that was found to have the right to an image.
func (r *Records) recordMatch(image, ref string, s *Secret) {
	if err := r.record(image, ref, (&Credential{Secret: s}).allows()); err != nil {
		r.opts.Logger.Error(err, "A secret with the right to an image cannot be recorded", "image", image,
			"secret", s.Namespace+"/"+s.Name)
	}
}

// find returns the record of an image, or nil, and whether the agent has pulled the image.
func (r *Records) find(image, ref string) (_ *recordFile, pulled bool) {
	name := fileName(ref)
	r.mu.RLock()
	e, ok := r.entries[name]
	pulled = !has(r.preloaded, name) && r.intended(image)
	r.mu.RUnlock()
	if !ok {
		return nil, pulled
	}
	if e.record != nil {
		return e.record, true
	}
	record, ok := r.read(name)
	return record, ok || pulled
}

// intended reports whether an image is or was being pulled. The caller holds mu.
func (r *Records) intended(image string) bool {
	if len(r.names) > 0 {
		name, byDigest := fullName(image), false
		if r.names[name] > 0 {
			return true
		}
		// A pull by tag may bring the image with any digest.
		if name, byDigest = repositoryOf(image); byDigest && r.names[name] > 0 {
			return true
		}
	}
	return len(r.damaged) > 0 && has(r.damaged, fileName(image))
}

func has(set map[string]struct{}, key string) bool {
	_, ok := set[key]
	return ok
}
