package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/podconfig/file"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/podconfig/objects"
)

// standardInput is the name of the input in the place of a path.
const standardInput = "-"

// validated is a manifest file and what is in it.
type validated struct {
	Path string `json:"path"`
	// Pods and Objects are what the file holds, as namespace/name. Objects begin with their kind.
	Pods    []string `json:"pods,omitempty"`
	Objects []string `json:"objects,omitempty"`
	// Errors is empty if the agent would use the whole file.
	Errors []string `json:"errors,omitempty"`
}

// validateCommand is the command validate. It needs no agent.
func validateCommand(e Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "validate PATH...", Short: "check manifests as the agent reads them", GroupID: groupPods,
		Long: "A path is a file, a directory, of which it reads the files that the agent would read, or - for the " +
			"input. No agent is needed, and nothing is started. It is strict: an agent in the place of a kubelet ignores " +
			"unknown and duplicated fields, as kubelet.\n" +
			"The exit code is 1 if the agent could not use a file.",
		Example: `  minikubelet validate manifests
  kubectl create --dry-run=client -o yaml ... | minikubelet validate -
  minikubelet validate -o json web.yaml`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault // files
		},
	}
	c := &call{Env: e, cmd: cmd}
	c.outputFlag(cmd.Flags())
	// the flag is there
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.args = args
		return c.validate(cmd.Context())
	}
	return cmd
}

// validate prints what is in the files, and what is wrong with them.
func (c *call) validate(ctx context.Context) error {
	if len(c.args) == 0 {
		return c.misused("want a file or directory, or - for the input")
	}
	node, err := (&config.Settings{}).NodeName()
	if err != nil || node == "" {
		node = "node"
	}
	v := validator{node: node, in: c.In}
	for _, path := range c.args {
		if err := ctx.Err(); err != nil {
			return err
		}
		v.path(ctx, path)
	}
	if err := c.printValidated(&v); err != nil {
		return err
	}
	bad := 0
	for i := range v.found {
		if len(v.found[i].Errors) > 0 {
			bad++
		}
	}
	if bad > 0 {
		return fmt.Errorf("manifests that cannot be used: %d of %d", bad, len(v.found))
	}
	return nil
}

func (c *call) printValidated(v *validator) error {
	if c.output.structured() {
		return PrintValue(c.Out, string(c.output), items[validated]{Items: slices.Concat([]validated{}, v.found)})
	}
	for i := range v.found {
		f := &v.found[i]
		path := terminal.Escape(f.Path)
		if c.output == asName {
			fmt.Fprintln(c.Out, path)
			continue
		}
		var has []string
		for _, pod := range f.Pods {
			has = append(has, "pod "+pod)
		}
		has = append(has, f.Objects...)
		switch {
		case len(f.Errors) == 0 && len(has) == 0:
			fmt.Fprintf(c.Out, "%s: holds nothing\n", path)
		case len(f.Errors) == 0:
			fmt.Fprintf(c.Out, "%s: %s\n", path, terminal.Escape(strings.Join(has, ", ")))
		case len(f.Errors) == 1:
			fmt.Fprintf(c.Out, "%s: error: %s\n", path, terminal.Escape(terminal.OneLine(f.Errors[0])))
		default:
			fmt.Fprintf(c.Out, "%s: %d errors\n", path, len(f.Errors))
			for _, text := range f.Errors {
				fmt.Fprintf(c.Out, "  %s\n", terminal.Escape(terminal.OneLine(text)))
			}
		}
	}
	for _, note := range v.notes {
		fmt.Fprintln(c.Err, terminal.Escape(note))
	}
	return nil
}

// validator reads manifests as the agent does. Each path is a source of its own.
type validator struct {
	node string
	in   io.Reader

	found []validated
	notes []string
}

// path reads a file, a directory or the input.
func (v *validator) path(ctx context.Context, path string) {
	if path == standardInput {
		in := v.in
		if in == nil {
			in = strings.NewReader("")
		}
		// One byte above the limit shows that the manifest is too large.
		data, err := io.ReadAll(io.LimitReader(in, manifest.MaxSize+1))
		if err != nil {
			v.failed(path, err)
			return
		}
		v.check(path, data, map[string]string{})
		return
	}
	entries, err := file.ReadDir(ctx, path)
	if errors.Is(err, syscall.ENOTDIR) {
		v.file(ctx, path, map[string]string{})
		return
	}
	if err != nil {
		v.failed(path, err)
		return
	}
	some, taken := false, map[string]string{}
	for _, entry := range entries {
		switch name := entry.Name(); {
		case file.IsManifest(name):
			some = true
			v.file(ctx, filepath.Join(path, name), taken)
		case entry.IsDir():
			v.notes = append(v.notes, filepath.Join(path, name)+" is ignored: the agent does not read directories "+
				"in a directory.")
		case !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "#") && !strings.HasSuffix(name, "~"):
			v.notes = append(v.notes, filepath.Join(path, name)+
				" is ignored: its name does not end in .yaml, .yml or .json.")
		}
	}
	if !some {
		v.notes = append(v.notes, path+" holds no manifests.")
	}
}

// file reads a file. taken are the names and UIDs of the files before it, with their paths.
func (v *validator) file(ctx context.Context, path string, taken map[string]string) {
	data, err := file.ReadFile(ctx, path)
	if err != nil {
		v.failed(path, err)
		return
	}
	v.check(path, data, taken)
}

// failed adds a path that cannot be read.
func (v *validator) failed(path string, err error) {
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err // the path is printed anyway
	}
	v.found = append(v.found, validated{Path: path, Errors: []string{err.Error()}})
}

// check checks a manifest.
func (v *validator) check(path string, data []byte, taken map[string]string) {
	result := validated{Path: path}
	defer func() { v.found = append(v.found, result) }()
	derived := map[types.UID]bool{} // they differ by file
	pods, found, err := manifest.LoadAll(data, manifest.Options{
		NodeName: v.node, Source: manifest.SourceFile, Origin: path,
		Kinds: []string{manifest.PodKind, objects.SecretKind, objects.ConfigMapKind},
		Allow: manifest.AllowedRefs{Env: true, PullSecrets: true, Volumes: true},
		UID:   func(pod *v1.Pod, _ string) types.UID { derived[pod.UID] = true; return pod.UID },
	})
	if invalid := (*manifest.InvalidError)(nil); errors.As(err, &invalid) {
		// A prefix names the document.
		before, _, _ := strings.Cut(err.Error(), invalid.Error())
		for _, e := range invalid.Errs {
			result.Errors = append(result.Errors, before+"pod "+v.name(invalid.Pod.Namespace, invalid.Pod.Name)+": "+
				e.Error())
		}
		return
	}
	if err != nil {
		result.Errors = []string{err.Error()}
		return
	}
	v.asKubelet(path, data)
	take := func(what, key string) {
		if other, ok := taken[key]; ok && other != path {
			result.Errors = append(result.Errors, fmt.Sprintf("%s is in %s too; the agent uses one of them", what,
				other))
			return
		}
		taken[key] = path
	}
	for _, pod := range pods {
		name := v.name(pod.Namespace, pod.Name)
		result.Pods = append(result.Pods, name)
		take("pod "+name, "pod "+name)
		for _, why := range (&config.Settings{}).IgnoredFields()(&pod.Spec) {
			v.notes = append(v.notes, fmt.Sprintf("%s: pod %s: %s", path, name, why))
		}
		if !derived[pod.UID] {
			take("UID "+string(pod.UID)+" of pod "+name, "uid "+string(pod.UID))
		}
	}
	for _, object := range found {
		name := objects.RefOf(object).String()
		result.Objects = append(result.Objects, name)
		take(name, name)
	}
}

// asKubelet notes what an agent in the place of a kubelet does not use of a manifest that is valid.
func (v *validator) asKubelet(path string, data []byte) {
	note := func(err error) {
		v.notes = append(v.notes, fmt.Sprintf("%s: in the place of a kubelet: %v", path, err))
	}
	_, err := manifest.Decode(data, manifest.Options{Warn: note,
		Kinds: []string{manifest.PodKind, objects.SecretKind, objects.ConfigMapKind}})
	if err != nil {
		note(fmt.Errorf("the file is refused: %w", err))
	}
}

// name returns the name of a pod as its manifest has it.
func (v *validator) name(namespace, name string) string {
	return namespace + "/" + strings.TrimSuffix(name, "-"+v.node)
}
