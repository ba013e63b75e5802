package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// bootModules are the modules that the guest needs to mount its root, where it has the others.
var bootModules = []string{"virtio_pci", "9pnet_virtio", "9p", "overlay"}

// modules returns the paths of the modules and of what they depend on, in the order of their loading.
// One that the kernel has built in is not listed. The content is that of a file modules.dep.
func modules(dep string, names ...string) []string {
	paths, needs := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(dep) {
		path, depends, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, _, _ := strings.Cut(filepath.Base(path), ".")
		paths[strings.ReplaceAll(name, "-", "_")] = path
		needs[path] = strings.Fields(depends)
	}
	var order []string
	for _, name := range names {
		path := paths[name]
		if path == "" {
			continue
		}
		for _, p := range slices.Backward(append([]string{path}, needs[path]...)) {
			if !slices.Contains(order, p) {
				order = append(order, p)
			}
		}
	}
	return order
}

// initrd writes the initial RAM disk: the program inside as its init, the job, and the modules of the
// kernel below linux.
func initrd(w io.Writer, linux, inside string, job []byte) error {
	archive := &cpio{w: w}
	archive.dir("guest")
	archive.file("guest/job.json", 0o644, job)
	program, err := os.ReadFile(inside)
	if err != nil {
		return err
	}
	archive.file("init", 0o755, program)
	found, err := filepath.Glob(filepath.Join(linux, "lib/modules/*/modules.dep"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("%s has %d modules.dep instead of 1", linux, len(found))
	}
	dep, err := os.ReadFile(found[0])
	if err != nil {
		return err
	}
	archive.dir("modules")
	for i, path := range modules(string(dep), bootModules...) {
		module, err := os.ReadFile(filepath.Join(filepath.Dir(found[0]), path))
		if err != nil {
			return err
		}
		archive.file(fmt.Sprintf("modules/%02d-%s", i, filepath.Base(path)), 0o644, module)
	}
	return archive.close()
}

// cpio writes an archive in the format that the kernel unpacks ("newc", see the kernel's
// driver-api/early-userspace/buffer-format). The first error is returned by close.
type cpio struct {
	w     io.Writer
	inode int
	err   error
}

func (c *cpio) dir(name string)                            { c.entry(name, 0o040755, nil) }
func (c *cpio) file(name string, mode int, content []byte) { c.entry(name, 0o100000|mode, content) }

func (c *cpio) close() error {
	c.entry("TRAILER!!!", 0, nil)
	return c.err
}

func (c *cpio) entry(name string, mode int, content []byte) {
	c.inode++
	header := "070701"
	// Inode, mode, owner, group, links, time, size, device and its minor twice, length of the name, checksum.
	for _, field := range []int{c.inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0} {
		header += fmt.Sprintf("%08X", field)
	}
	c.write(pad(header + name + "\x00"))
	c.write(pad(string(content)))
}

// pad returns the text with zeros up to a multiple of four bytes.
func pad(text string) string { return text + strings.Repeat("\x00", -len(text)&3) }

func (c *cpio) write(text string) {
	if c.err == nil {
		_, c.err = io.WriteString(c.w, text)
	}
}
