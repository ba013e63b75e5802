package client

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// podHelp explains POD.
const podHelp = "POD is the name of a pod, with or without the name of the node at its end, NAMESPACE/POD, or its UID."

// helpCommand is the command help.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "explain a command", GroupID: groupOther,
		RunE: func(cmd *cobra.Command, args []string) error {
			about := cmd.Root()
			for _, name := range args {
				next := commandNamed(about, name)
				if next == nil {
					return unknown(about, name)
				}
				about = next
			}
			return about.Help()
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string,
			cobra.ShellCompDirective) {
			var names []string
			for _, c := range cmd.Root().Commands() {
				if len(args) == 0 && c.IsAvailableCommand() && strings.HasPrefix(c.Name(), toComplete) {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

// helpWidth returns the number of columns that help may take.
func (e *Env) helpWidth() int {
	if width := e.lineWidth(); width > 0 {
		return min(width, 120)
	}
	return 80
}

// help returns the help of a command.
func help(cmd *cobra.Command, width int) string {
	var b strings.Builder
	b.WriteString(wrap(sentence(cmd.Short), width, 0))
	if cmd.Long != "" {
		b.WriteString("\n" + wrap(cmd.Long, width, 0))
	}
	b.WriteString("\nUsage:\n")
	if !cmd.HasParent() {
		talk := cmd.Name() + " COMMAND [FLAGS]"
		column := len(talk) + 4
		b.WriteString(entry(cmd.Name()+" run FLAGS", "run the agent; help run lists its flags", column, width) + entry(talk, "talk to the agent that runs", column, width))
	} else {
		b.WriteString(synopsis(cmd))
	}
	if text := aboutPods(cmd); text != "" {
		b.WriteString("\n" + wrap(text, width, 0))
	}
	if cmd.Example != "" {
		b.WriteString("\nExamples:\n" + strings.TrimRight(cmd.Example, "\n") + "\n")
	}
	for _, g := range cmd.Groups() {
		b.WriteString("\n" + g.Title + "\n" + list(cmd, g.ID, width))
	}
	if len(cmd.Groups()) == 0 && cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n" + list(cmd, "", width))
	}
	if !cmd.HasParent() {
		b.WriteString("\n" + wrap(cmd.Name()+" help COMMAND explains a command.", width, 0))
	} else if cmd.HasAvailableLocalFlags() {
		b.WriteString("\nFlags:\n" + flagUsages(cmd.LocalFlags(), width))
	}
	if text := exitCodes(cmd); text != "" {
		b.WriteString("\n" + wrap(text, width, 0))
	}
	return b.String()
}

// exitCodes explains the exit code of a command, unless its own text does, or it only has commands below it.
func exitCodes(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() || strings.Contains(cmd.Long, "exit code") {
		return ""
	}
	text := "The exit code is 0; 1 after an error, 2 if the arguments are wrong, 130 after an interrupt."
	if cmd.Flags().Lookup("container-runtime-endpoint") != nil && cmd.Name() != "stop" {
		text += " It is 3 if no agent runs, and what it has left is shown."
	}
	return text
}

// aboutPods explains POD, if the command has one.
func aboutPods(cmd *cobra.Command) string {
	if strings.Contains(cmd.Use, "POD") {
		return podHelp
	}
	return ""
}

// synopsis returns how a command is called.
func synopsis(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return fmt.Sprintf("  %[1]s run FLAGS\n  %[1]s COMMAND [FLAGS]\n", cmd.Name())
	}
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	var b strings.Builder
	for _, name := range append([]string{cmd.Name()}, cmd.Aliases...) {
		line := cmd.Parent().CommandPath() + " " + name
		if cmd.HasAvailableSubCommands() {
			line += " COMMAND"
		}
		b.WriteString("  " + strings.TrimSpace(line+" [FLAGS] "+arguments) + "\n")
	}
	return b.String()
}

// entry returns a name and a text that begins in a column of its own.
func entry(name, text string, column, width int) string {
	return fmt.Sprintf("%-*s%s", column, "  "+name, strings.TrimLeft(wrap(text, width, column), " "))
}

// list returns the commands of a group, one on a line.
func list(parent *cobra.Command, group string, width int) string {
	var b strings.Builder
	for _, cmd := range parent.Commands() {
		if cmd.GroupID == group && (cmd.IsAvailableCommand() || cmd.Name() == "help") {
			b.WriteString(entry(cmd.Name(), cmd.Short, 17, width))
		}
	}
	return b.String()
}

// flagColumn is where the text about a flag begins.
const flagColumn = 28

// flagUsages returns the flags, sorted by name.
func flagUsages(fs *pflag.FlagSet, width int) string {
	var b strings.Builder
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name, text := flagUsage(f)
		text = strings.TrimLeft(wrap(text, width, flagColumn), " ")
		if len(name)+2 > flagColumn {
			b.WriteString(name + "\n" + strings.Repeat(" ", flagColumn) + text)
		} else {
			fmt.Fprintf(&b, "%-*s%s", flagColumn, name, text)
		}
	})
	return b.String()
}

// flagUsage returns the names of a flag and what it does.
func flagUsage(f *pflag.Flag) (name, text string) {
	name = "      --" + f.Name
	if f.Shorthand != "" {
		name = "  -" + f.Shorthand + ", --" + f.Name
	}
	kind, text := pflag.UnquoteUsage(f)
	if kind != "" {
		name += " " + kind
	}
	if !slices.Contains([]string{"", "false", "0", "0s", "[]", "-1"}, f.DefValue) {
		text += " (default " + f.DefValue + ")"
	}
	return name, text
}

// sentence returns the text with a capital letter and a full stop.
func sentence(text string) string {
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}

// wrap breaks lines between words, and long words after commas, and indents the lines. Lines that are indented already
// stay.
func wrap(text string, width, indent int) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSpace(text) + "\n") {
		if strings.TrimSpace(line) == "" || line[0] == ' ' || line[0] == '\t' {
			b.WriteString(line)
			continue
		}
		at := 0
		for _, word := range strings.Fields(line) {
			for i, part := range parts(word, width-indent) {
				switch {
				case at == 0:
					b.WriteString(strings.Repeat(" ", indent))
					at = indent
				case at+1+len(part) > width:
					b.WriteString("\n" + strings.Repeat(" ", indent))
					at = indent
				case i == 0:
					b.WriteString(" ")
					at++
				}
				b.WriteString(part)
				at += len(part)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// wrapped returns a line that ends with a line break, and that is wrapped at the width unless that is 0.
func wrapped(line string, width int) string {
	if width == 0 {
		return line + "\n"
	}
	return wrap(line, width, 0)
}

// parts returns the word, or if it is longer than most, its parts that end with commas.
func parts(word string, most int) []string {
	if len(word) <= most {
		return []string{word}
	}
	return strings.SplitAfter(word, ",")
}
