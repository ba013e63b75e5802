package records

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// modelImages are two tags of a private image, a private image of others, and a public one.
var modelImages = []string{"reg.example/app:1", "reg.example/app:2", "reg.example/other:1", "reg.example/public:1"}

// tenant is a pod author: with a secret whose content can change, with a service account, or without a credential.
type tenant struct {
	cred Credential
	// pulls are the private images whose registry accepts the credential, by name.
	pulls map[string]bool
}

// who may use an image under one name, in the model.
type who struct {
	node     bool
	secrets  map[Secret]string // to the hash; the key has none
	accounts map[ServiceAccount]bool
	// ever has all credentials that have had the right. It does not forget the content that a secret had.
	ever map[string]bool
}

type modelRecord struct {
	names map[string]*who
	// young means that it has changed since the time at which a list can have begun; damaged that its file cannot be
	// read.
	young, damaged bool
}

type modelIntent struct{ open, young, late bool }

// model is a node with the records that it should have.
type model struct {
	*node
	r       *Records
	tenants []*tenant
	// present are the images of the runtime, by ID; tags their names, and registry the IDs that pulls get.
	present        map[string]bool
	tags, registry map[string]string
	recs           map[string]*modelRecord
	intents        map[string]*modelIntent
	// preloaded are the IDs of the images of the last list that were not pulled.
	preloaded map[string]bool
	hashes    int
}

func (m *model) restart() {
	m.r, m.preloaded = m.records(), map[string]bool{}
	require.NoError(m.t, m.r.load()) // the age of intents begins here
	for _, rec := range m.recs {
		rec.young = false
	}
	for _, i := range m.intents {
		i.open, i.young, i.late = true, true, false
	}
}

func (m *model) hash() string {
	m.hashes++
	return fmt.Sprint("hash-", m.hashes)
}

// keys identify a credential by what it is and by its content.
func keys(c Credential) []string {
	switch {
	case c.Secret != nil:
		id := *c.Secret
		id.Hash = ""
		return []string{fmt.Sprint(id), c.Secret.Hash}
	case c.ServiceAccount != nil:
		return []string{fmt.Sprint("account ", *c.ServiceAccount)}
	default:
		return nil
	}
}

// grant is what a record of a pull, or of a match, means.
func (m *model) grant(image, ref string, c *Credential) {
	rec := m.recs[ref]
	if rec == nil {
		rec = &modelRecord{names: map[string]*who{}, young: true}
		m.recs[ref] = rec
	}
	if rec.damaged { // it is replaced
		rec.young, rec.damaged = true, false
	}
	if c == nil {
		return
	}
	name, _ := nameOf(image)
	w := rec.names[name]
	if w == nil {
		w = &who{secrets: map[Secret]string{}, accounts: map[ServiceAccount]bool{}, ever: map[string]bool{}}
		rec.names[name] = w
		rec.young = true
	}
	if w.node {
		return
	}
	for _, key := range keys(*c) {
		w.ever[key] = true
	}
	switch {
	case c.Secret != nil:
		id := *c.Secret
		id.Hash = ""
		if have, ok := w.secrets[id]; !ok || have != c.Secret.Hash {
			w.secrets[id], rec.young = c.Secret.Hash, true
		}
	case c.ServiceAccount != nil:
		if !w.accounts[*c.ServiceAccount] {
			w.accounts[*c.ServiceAccount], rec.young = true, true
		}
	default:
		w.node, rec.young = true, true
		clear(w.secrets)
		clear(w.accounts)
	}
}

// may says whether Decide should permit it.
func (m *model) may(image, ref string, c Credential) bool {
	rec, i := m.recs[ref], m.intents[image]
	if rec == nil {
		return (i == nil || m.preloaded[ref]) && m.opts.Policy == NeverVerifyPreloadedImages
	}
	name, _ := nameOf(image)
	w := rec.names[name]
	if w == nil {
		return false
	}
	if w.node {
		return true
	}
	switch {
	case c.Secret != nil:
		id := *c.Secret
		id.Hash = ""
		_, same := w.secrets[id]
		return same || slices.Contains(slices.Collect(maps.Values(w.secrets)), c.Secret.Hash)
	case c.ServiceAccount != nil:
		return w.accounts[*c.ServiceAccount]
	default:
		return false
	}
}

// use starts a pod with an image that is present, and reports whether it needs no pull.
func (m *model) use(t *rapid.T, image string, who *tenant) bool {
	ref := m.tags[image]
	if !m.present[ref] {
		return false
	}
	decision, err := m.r.Decide(image, ref, func() ([]Credential, error) { return []Credential{who.cred}, nil })
	require.NoError(t, err)
	got := decision.MayUse()
	require.Equal(t, m.may(image, ref, who.cred), got, "%s (%s) for %v", image, ref, who.cred)
	if !got {
		return false
	}
	if rec := m.recs[ref]; rec != nil {
		name, _ := nameOf(image)
		w := rec.names[name]
		require.True(t, w.node || slices.ContainsFunc(keys(who.cred), func(k string) bool { return w.ever[k] }),
			"%s is used with %v, which has never pulled it, nor has one that is equal", image, who.cred)
		if !w.node {
			m.grant(image, ref, &who.cred)
		}
	}
	return true
}

// pull pulls an image as package images does.
func (m *model) pull(t *rapid.T, image string, who *tenant) {
	require.NoError(t, m.r.Intend(image))
	i := m.intents[image]
	if i == nil {
		i = &modelIntent{}
		m.intents[image] = i
	}
	if other := m.tenants[0]; m.present[m.tags[image]] {
		m.use(t, image, other) // while it is pulled
	}
	ended := func() {
		if !i.open {
			delete(m.intents, image)
		}
	}
	name, _ := nameOf(image)
	public := name == "reg.example/public"
	if !public && !who.pulls[name] {
		m.r.Failed(image)
		ended()
		return
	}
	ref := m.registry[image]
	arrives := func() { m.present[ref], m.tags[image] = true, ref }
	switch rapid.SampledFrom([]string{"pulled", "pulled", "pulled", "unknown", "killed", "killed before"}).Draw(t,
		"end") {
	case "pulled":
		arrives()
		c := who.cred
		if public {
			c = Credential{}
		}
		require.NoError(t, m.r.Pulled(image, ref, c))
		m.grant(image, ref, &c)
		m.recs[ref].young = true // also if nothing is new
		ended()
	case "unknown":
		arrives()
		m.r.Unknown(image)
		i.open, i.young, i.late = true, true, true
	case "killed":
		arrives()
		m.restart()
	case "killed before":
		m.restart()
	}
}

// list passes a list of images on.
func (m *model) list() {
	var list runtime.ImageList
	for ref := range m.present {
		image := runtime.Image{ID: ref}
		for tag, at := range m.tags {
			if at == ref {
				image.Tags = append(image.Tags, tag)
			}
		}
		list.Images = append(list.Images, image)
	}
	m.r.Listed(list)
	for image, i := range m.intents {
		switch ref := m.tags[image]; {
		case m.present[ref]:
			if !m.preloaded[ref] || m.recs[ref] != nil {
				m.grant(image, ref, nil)
				m.recs[ref].young = true
			}
			if !i.late || !i.young { // else the list may be older than the image
				delete(m.intents, image)
			}
		case !i.young:
			delete(m.intents, image)
		}
	}
	for ref, rec := range m.recs {
		if !m.present[ref] && !rec.young {
			delete(m.recs, ref)
		}
	}
	for ref := range m.preloaded {
		m.preloaded[ref] = m.present[ref] && m.recs[ref] == nil
	}
	for ref := range m.present {
		if m.recs[ref] == nil {
			m.preloaded[ref] = true // no intent is left of an image that is present
		}
	}
}

// No tenant uses what it may not; what it may use is not pulled again.
func TestModel(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		m := &model{node: newNode(outer), present: map[string]bool{}, tags: map[string]string{},
			registry: map[string]string{}, recs: map[string]*modelRecord{}, intents: map[string]*modelIntent{}}
		defer func() { _ = os.RemoveAll(m.dir) }()
		m.opts.Policy = rapid.SampledFrom([]Policy{NeverVerifyPreloadedImages, NeverVerifyPreloadedImages,
			AlwaysVerify}).Draw(t, "policy")
		m.restart()
		for i := range 4 {
			c := Credential{Secret: &Secret{UID: types.UID(fmt.Sprint("uid-", i)), Namespace: fmt.Sprint("tenant-", i),
				Name: "pull", Hash: m.hash()}}
			m.tenants = append(m.tenants,
				&tenant{cred: c, pulls: map[string]bool{"reg.example/app": i != 0, "reg.example/other": i == 2}})
		}
		m.tenants = append(m.tenants, &tenant{}, &tenant{cred: account("1", "a"),
			pulls: map[string]bool{"reg.example/app": true}}, &tenant{cred: account("2", "a")})
		for i, image := range modelImages {
			m.registry[image] = fmt.Sprint("sha256:", i)
		}
		some := func() (string, *tenant) {
			return rapid.SampledFrom(modelImages).Draw(t, "image"), rapid.SampledFrom(m.tenants).Draw(t, "tenant")
		}
		start := func(t *rapid.T) {
			image, who := some()
			if !m.use(t, image, who) {
				m.pull(t, image, who)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"start":  start,
			"start2": start,
			"start3": start,
			"pull always": func(t *rapid.T) {
				image, who := some()
				m.pull(t, image, who)
			},
			"rotate": func(t *rapid.T) {
				who := rapid.SampledFrom(m.tenants[:4]).Draw(t, "tenant")
				s := *who.cred.Secret
				s.Hash = m.hash()
				if other := rapid.SampledFrom(m.tenants[:4]).Draw(t, "like"); rapid.Bool().Draw(t, "equal") {
					s.Hash = other.cred.Secret.Hash // copied to another namespace
					who.pulls = other.pulls
				}
				who.cred.Secret = &s
			},
			"push": func(t *rapid.T) {
				image, _ := some()
				m.registry[image] = fmt.Sprint("sha256:", rapid.IntRange(0, 6).Draw(t, "version"))
			},
			"preload": func(t *rapid.T) {
				image, _ := some()
				ref := m.registry[image]
				m.present[ref], m.tags[image] = true, ref
			},
			"remove": func(t *rapid.T) {
				if len(m.present) > 0 {
					ref := rapid.SampledFrom(slices.Sorted(maps.Keys(m.present))).Draw(t, "ref")
					delete(m.present, ref)
				}
			},
			"restart": func(*rapid.T) { m.restart() },
			"damage": func(t *rapid.T) {
				if len(m.recs) > 0 {
					ref := rapid.SampledFrom(slices.Sorted(maps.Keys(m.recs))).Draw(t, "ref")
					m.write("pulled", ref, "")
					*m.recs[ref] = modelRecord{names: map[string]*who{}, damaged: true}
					m.restart()
				}
			},
			"list": func(*rapid.T) { m.list() },
			"list later": func(*rapid.T) {
				m.r.age()
				for _, rec := range m.recs {
					rec.young = false
				}
				for _, i := range m.intents {
					i.young = false
				}
				m.list()
			},
			"": func(t *rapid.T) {
				require.Len(t, m.files("pulled"), len(m.recs))
				require.Len(t, m.files("pulling"), len(m.intents))
			},
		})
	})
}
