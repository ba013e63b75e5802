package harness

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
)

// Credentials of the repositories below "private/" of a [Registry].
const (
	RegistryUser     = "kit"
	RegistryPassword = "open-sesame"
)

// Registry is a read-only OCI registry that holds images of busybox:
//
//   - busybox:1 and busybox:2, which differ in the environment variable VERSION
//   - busybox:flaky, which is busybox:1, for tests with SetBroken
//   - busybox:held, with a layer of its own, for tests with Hold
//   - busybox:user, which runs as user 1000
//   - pause:1, for sandboxes
//   - private/busybox:1, for those with the credentials
//
// It counts its requests, and can be made to fail.
type Registry struct {
	addr  string
	blobs map[string][]byte // by digest
	tags  map[string]string // "repo:tag" to the digest of the manifest
	// layers has the digests of the layers, by "repo:tag".
	layers map[string]string

	mu     sync.Mutex
	pulls  map[string]int
	broken map[string]bool
	// held has the requests for layers that are held back, by the name of the image.
	held map[string]*heldLayer
}

// heldLayer is the layer of an image that is not sent for now.
type heldLayer struct {
	digest   string
	released chan struct{}
	requests int
}

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
}

type imageConfig struct {
	User       string   `json:"User,omitempty"`
	Env        []string `json:"Env,omitempty"`
	Entrypoint []string `json:"Entrypoint,omitempty"`
	Cmd        []string `json:"Cmd,omitempty"`
}

// layer is the one layer of all images; it takes half a second to compress.
var layer = sync.OnceValues(func() ([2][]byte, error) {
	raw, err := busyboxLayer()
	if err != nil {
		return [2][]byte{}, err
	}
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	w.Write(raw)
	w.Close()
	return [2][]byte{raw, packed.Bytes()}, nil
})

// newRegistry returns a registry that is to be served at the address.
func newRegistry(addr string) (*Registry, error) {
	r := &Registry{
		addr: addr, blobs: map[string][]byte{}, tags: map[string]string{}, layers: map[string]string{},
		pulls: map[string]int{}, broken: map[string]bool{}, held: map[string]*heldLayer{},
	}
	data, err := layer()
	if err != nil {
		return nil, err
	}
	path := "PATH=/bin"
	shell := []string{"/bin/sh"}
	r.add("busybox:1", data, imageConfig{Env: []string{path, "VERSION=1"}, Cmd: shell})
	r.add("busybox:2", data, imageConfig{Env: []string{path, "VERSION=2"}, Cmd: shell})
	r.add("busybox:user", data, imageConfig{Env: []string{path}, Cmd: shell, User: "1000"})
	r.add("busybox:flaky", data, imageConfig{Env: []string{path, "VERSION=1"}, Cmd: shell})
	// Equal layers are fetched once. Behind the end of a tar may be more zeros.
	padding := make([]byte, 512)
	r.add("busybox:held", [2][]byte{slices.Concat(data[0], padding), slices.Concat(data[1], packed(padding))},
		imageConfig{Env: []string{path}, Cmd: shell})
	r.add("private/busybox:1", data, imageConfig{Env: []string{path, "VERSION=1"}, Cmd: shell})
	r.add("pause:1", data, imageConfig{Env: []string{path}, Cmd: []string{"/bin/sleep", "2147483647"}})
	return r, nil
}

// Add adds the image busybox with the tag, which is busybox:1 with a layer of its own. It is called before an
// image is pulled. If the same tags are added in the same order, the images are the same.
func (r *Registry) Add(tag string) error {
	data, err := layer()
	if err != nil {
		return err
	}
	own := make([]byte, 512*len(r.tags))
	r.add("busybox:"+tag, [2][]byte{slices.Concat(data[0], own), slices.Concat(data[1], packed(own))},
		imageConfig{Env: []string{"PATH=/bin"}, Cmd: []string{"/bin/sh"}})
	return nil
}

// Image returns the reference of an image of the registry, as in "busybox:1".
func (r *Registry) Image(name string) string { return r.addr + "/" + name }

// Pulls returns how often the manifest of the image was requested by its tag.
func (r *Registry) Pulls(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls[name]
}

// SetBroken makes the registry answer requests for the image by its tag with status 500, or
// answer them normally again.
func (r *Registry) SetBroken(name string, broken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken[name] = broken
}

// Hold makes the registry answer no request for the layer of the image until release is called.
func (r *Registry) Hold(name string) (release func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &heldLayer{digest: r.layers[name], released: make(chan struct{})}
	r.held[name] = h
	return sync.OnceFunc(func() { close(h.released) })
}

// Held returns how many requests for the layer of the image have been held back.
func (r *Registry) Held(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[name].requests
}

// wait holds a request for a layer back if it is to be.
func (r *Registry) wait(req *http.Request, digest string) {
	r.mu.Lock()
	var released chan struct{}
	for _, h := range r.held {
		if h.digest == digest {
			h.requests++
			released = h.released
		}
	}
	r.mu.Unlock()
	if released == nil {
		return
	}
	select {
	case <-released:
	case <-req.Context().Done():
	}
}

// packed returns a gzip stream with the data.
func packed(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(data)
	w.Close()
	return b.Bytes()
}

// add adds an image of the layers, each as a tar and compressed.
func (r *Registry) add(name string, layer [2][]byte, config imageConfig, more ...[2][]byte) {
	var ids []string
	var blobs []descriptor
	for _, l := range append([][2][]byte{layer}, more...) {
		ids = append(ids, digest(l[0]))
		blobs = append(blobs, r.put("application/vnd.oci.image.layer.v1.tar+gzip", l[1]))
	}
	cfg := r.put("application/vnd.oci.image.config.v1+json", mustJSON(map[string]any{
		"architecture": goarch(), "os": "linux", "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	}))
	r.layers[name] = blobs[0].Digest
	manifest := r.put(manifestType, mustJSON(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": cfg, "layers": blobs,
	}))
	r.tags[name] = manifest.Digest
}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

func (r *Registry) put(mediaType string, data []byte) descriptor {
	d := descriptor{mediaType, digest(data), len(data)}
	r.blobs[d.Digest] = data
	return d
}

// credentialsFor returns the credentials that a request needs, if it needs some.
func credentialsFor(repo, ref string) (user, password string, ok bool) {
	switch {
	case strings.HasPrefix(repo, "private/"):
		return RegistryUser, RegistryPassword, true
	case repo+":"+ref == guardedImage:
		return "user", "password", true
	}
	return "", "", false
}

// ServeHTTP serves what a pull needs of the distribution API.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, "/v2/")
	if path == "" {
		return
	}
	parts := strings.Split(path, "/")
	if len(parts) < 3 || req.Method != http.MethodGet && req.Method != http.MethodHead {
		http.NotFound(w, req)
		return
	}
	repo, kind, ref := strings.Join(parts[:len(parts)-2], "/"), parts[len(parts)-2], parts[len(parts)-1]
	if wantUser, wantPassword, ok := credentialsFor(repo, ref); ok {
		if user, password, _ := req.BasicAuth(); user != wantUser || password != wantPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
	}
	if kind == "manifests" && !strings.Contains(ref, ":") {
		name := repo + ":" + ref
		r.mu.Lock()
		r.pulls[name]++
		broken := r.broken[name]
		r.mu.Unlock()
		if broken {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		ref = r.tags[name]
	}
	data, ok := r.blobs[ref]
	if !ok {
		http.NotFound(w, req)
		return
	}
	w.Header().Set("Docker-Content-Digest", ref)
	w.Header().Set("Content-Type", "application/octet-stream")
	if kind == "manifests" {
		w.Header().Set("Content-Type", manifestType)
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	if kind == "blobs" && req.Method == http.MethodGet {
		r.wait(req, ref)
	}
	if req.Method == http.MethodGet {
		w.Write(data)
	}
}

// nmeter stands for the applet, which Debian's busybox lacks, as the node tests of Kubernetes call
// it: it prints the time with milliseconds.
const nmeter = `#!/bin/sh
f=/tmp/nmeter-$$
touch $f
stat -c %y $f | cut -c12-23
rm $f
`

// busyboxLayer returns a root file system of the host's static busybox as a tar.
func busyboxLayer() ([]byte, error) {
	bin, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(bin)
	if err != nil {
		return nil, err
	}
	list, err := exec.Command(bin, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox --list: %w", err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	dir := func(name string, mode int64) {
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode})
	}
	file := func(name, content string, mode int64) {
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))})
		w.Write([]byte(content))
	}
	for _, name := range []string{"bin", "etc", "root"} {
		dir(name, 0o755)
	}
	dir("tmp", 0o1777)
	file("bin/busybox", string(data), 0o755)
	file("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nkit:x:1000:1000:kit:/:/bin/sh\n", 0o644)
	file("etc/group", "root:x:0:\nkit:x:1000:\n", 0o644)
	applets := strings.Fields(string(list))
	if !slices.Contains(applets, "nmeter") {
		file("bin/nmeter", nmeter, 0o755)
	}
	slices.Sort(applets)
	for _, applet := range slices.Compact(applets) {
		if applet != "busybox" {
			w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox",
				Mode: 0o777})
		}
	}
	return buf.Bytes(), w.Close()
}

// filesLayer returns a root file system as a tar: files of the host by their paths in it.
func filesLayer(files map[string]string) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777})
	for name, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(data))})
		w.Write(data)
	}
	return buf.Bytes(), w.Close()
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
