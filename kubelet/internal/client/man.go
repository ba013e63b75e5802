package client

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
)

// manCommand is the hidden command man, which packages call when they are built.
func manCommand(e Env) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "write the manual pages of all commands to a directory", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &config.UsageError{Err: fmt.Errorf("man: want a directory")}
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			pages := manPages(cmd.Root())
			for name, page := range pages {
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(page), 0o644); err != nil {
					return err
				}
			}
			_, err := fmt.Fprintf(e.Out, "%d pages are in %s.\n", len(pages), args[0])
			return err
		},
	}
}

// manPages returns the manual pages of the command and of those below it, by the names of their files.
func manPages(cmd *cobra.Command) map[string]string {
	pages := map[string]string{manName(cmd) + ".1": manPage(cmd)}
	for _, below := range cmd.Commands() {
		if !below.IsAvailableCommand() && below.Name() != "help" {
			continue
		}
		for name, page := range manPages(below) {
			pages[name] = page
		}
	}
	return pages
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns the manual page of a command, for the program man. It has no date, so that packages
// are the same whenever they are built.
func manPage(cmd *cobra.Command) string {
	var b strings.Builder
	name := manName(cmd)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"%s\" \"User Commands\"\n", roff(strings.ToUpper(name)), roff(cmd.Root().Name()))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(strings.TrimSuffix(cmd.Short, ".")))
	b.WriteString(".SH SYNOPSIS\n")
	for line := range strings.Lines(synopsis(cmd)) {
		fmt.Fprintf(&b, ".br\n\\fB%s\\fR\n", roff(strings.TrimSpace(line)))
	}
	if text := strings.TrimSpace(cmd.Long + "\n\n" + aboutPods(cmd)); text != "" {
		b.WriteString(".SH DESCRIPTION\n" + roffLines(text))
	}
	for _, group := range cmd.Groups() {
		fmt.Fprintf(&b, ".SH %s\n", roff(strings.ToUpper(strings.TrimSuffix(group.Title, ":"))))
		for _, below := range cmd.Commands() {
			if below.GroupID == group.ID && (below.IsAvailableCommand() || below.Name() == "help") {
				fmt.Fprintf(&b, ".TP\n\\fB%s\\fR(1)\n%s\n", roff(manName(below)), roff(sentence(below.Short)))
			}
		}
	}
	if cmd.HasAvailableLocalFlags() {
		b.WriteString(".SH OPTIONS\n")
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			names, text := flagUsage(f)
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(strings.TrimSpace(names)), roff(text))
		})
	}
	if text := exitCodes(cmd); text != "" {
		b.WriteString(".SH EXIT STATUS\n" + roffLines(text))
	}
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n.nf\n" + roffLines(cmd.Example) + ".fi\n")
	}
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n\\fB%s\\fR(1)\n", roff(manName(cmd.Parent())))
	}
	return b.String()
}

// roff returns a text without characters that act on roff.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

func roffLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		if line = strings.TrimRight(line, "\n"); line == "" {
			b.WriteString(".PP\n")
			continue
		}
		b.WriteString(roff(line) + "\n")
	}
	return b.String()
}
