package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	// nameInComment matches words, and words joined by dots. A match is taken for a Go name if it contains a
	// dot, or a capital letter after a small letter or a digit (mixedCaps).
	nameInComment = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*`)
	mixedCaps     = regexp.MustCompile(`[a-z0-9][A-Z]`)
	word          = regexp.MustCompile(`[A-Za-z_][A-Za-z0-9_]*`)
	quoted        = regexp.MustCompile("\"[^\"\n]*\"|`[^`\n]*`")
)

type names struct {
	used    map[string]bool            // words in code, in documents and in sources of other languages; not in Go comments
	members map[string]map[string]bool // what a package or type of that name has
	types   map[string]bool
}

func (n *names) add(owner, member string) {
	if n.members[owner] == nil {
		n.members[owner] = map[string]bool{}
	}
	n.members[owner][member] = true
}

// declare records the declarations of a Go file and the words in it.
func (n *names) declare(file *ast.File) {
	pkg := file.Name.Name
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.CommentGroup:
			return false
		case *ast.Ident:
			n.used[node.Name] = true
		case *ast.BasicLit:
			for _, w := range word.FindAllString(node.Value, -1) {
				n.used[w] = true
			}
		case *ast.FuncDecl:
			n.add(pkg, node.Name.Name)
			if node.Recv != nil {
				n.add(receiver(node.Recv.List[0].Type), node.Name.Name)
			}
		case *ast.TypeSpec:
			n.add(pkg, node.Name.Name)
			n.types[node.Name.Name] = true
			n.fields(node.Name.Name, node.Type)
		case *ast.ValueSpec:
			for _, name := range node.Names {
				n.add(pkg, name.Name)
			}
		}
		return true
	})
}

// fields records the fields of a struct or the methods of an interface.
func (n *names) fields(owner string, expression ast.Expr) {
	var list *ast.FieldList
	switch expression := expression.(type) {
	case *ast.StructType:
		list = expression.Fields
	case *ast.InterfaceType:
		list = expression.Methods
	default:
		n.add(owner, "") // something else, whose members are not known
		return
	}
	for _, field := range list.List {
		if len(field.Names) == 0 {
			n.add(owner, "") // embedded
		}
		for _, name := range field.Names {
			n.add(owner, name.Name)
		}
	}
}

func receiver(expression ast.Expr) string {
	for {
		switch e := expression.(type) {
		case *ast.StarExpr:
			expression = e.X
		case *ast.IndexExpr:
			expression = e.X
		case *ast.IndexListExpr:
			expression = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

func (n *names) missing(comment string) (list []string) {
	for _, name := range nameInComment.FindAllString(quoted.ReplaceAllString(comment, ""), -1) {
		parts := strings.Split(name, ".")
		for i, part := range parts {
			if mixedCaps.MatchString(part) && !n.used[part] {
				list = append(list, name)
				break
			}
			if i == 0 || !token.IsExported(part) && !mixedCaps.MatchString(part) {
				continue
			}
			owner := n.members[parts[i-1]]
			if owner != nil && n.types[parts[i-1]] && token.IsExported(parts[i-1]) && !owner[""] && !owner[part] {
				list = append(list, name)
				break
			}
		}
	}
	return list
}

// eachSource calls visit with the name of each file of the repository, except files in folders named build or .git.
func eachSource(t *testing.T, visit func(name string)) {
	require.NoError(t, filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "build" || entry.Name() == ".git"):
			return filepath.SkipDir
		case !entry.IsDir():
			visit(name)
		}
		return nil
	}))
}

// Ensure that each name in a comment of a Go file is also used outside these comments: in Go code, in a source of
// another language, or in a document. All other names, such as some names of vLLM, must be in otherNames.
func TestNamesInCommentsExist(t *testing.T) {
	n := &names{used: map[string]bool{}, members: map[string]map[string]bool{}, types: map[string]bool{}}
	positions := token.NewFileSet()
	files := map[string]*ast.File{}
	eachSource(t, func(name string) {
		switch filepath.Ext(name) {
		case ".go":
			file, err := parser.ParseFile(positions, name, nil, parser.ParseComments|parser.SkipObjectResolution)
			require.NoError(t, err)
			files[name] = file
			n.declare(file)
		case ".md", ".c", ".h", ".js", ".py", ".txt", ".sh", ".s", ".mod":
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			for _, w := range word.FindAllString(string(text), -1) {
				n.used[w] = true
			}
		}
	})
	for _, file := range files {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if strings.HasPrefix(comment.Text, "//go:") || strings.HasPrefix(comment.Text, "// Code generated") {
					continue
				}
				for _, missing := range n.missing(comment.Text) {
					if !slices.Contains(otherNames, missing) {
						t.Errorf("%s: %s: nothing has this name", positions.Position(comment.Pos()), missing)
					}
				}
			}
		}
	}
}

// notNouns are words that read as English, not as a name, in a comment such as "from to to-1" or "byte at of the row".
var notNouns = strings.Fields("again ahead alone at by from in into inside is least like more most not of off on over own some than then to until " +
	"what when where why with within")

// Ensure that no parameter, result, receiver, field, function, type, package-level variable or package-level constant
// has a name in notNouns.
func TestNamesAreNouns(t *testing.T) {
	positions := token.NewFileSet()
	check := func(names ...*ast.Ident) {
		for _, n := range names {
			if slices.Contains(notNouns, n.Name) {
				t.Errorf("%s: the name %s reads as English in a comment: take a noun, such as start, end, source, offset or limit", positions.Position(n.Pos()), n.Name)
			}
		}
	}
	eachSource(t, func(name string) {
		if filepath.Ext(name) != ".go" {
			return
		}
		file, err := parser.ParseFile(positions, name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.Field:
				check(node.Names...)
			case *ast.FuncDecl:
				check(node.Name)
			case *ast.TypeSpec:
				check(node.Name)
			case *ast.BlockStmt:
				ast.Inspect(node, func(node ast.Node) bool {
					if f, ok := node.(*ast.Field); ok {
						check(f.Names...)
					}
					return true
				})
				return false
			case *ast.ValueSpec:
				check(node.Names...)
			}
			return true
		})
	})
}

// otherNames are what this repository has only in comments.
var otherNames = []string{
	// vLLM's.
	"AllocStatus", "AsyncLLMEngine", "CacheDType", "EncoderCacheManager", "EngineArgs.get_batch_defaults", "EngineArgs.gpu_memory_utilization",
	"KVCacheSpecKind", "KVTransferConfig", "MambaManager", "ModelDType", "ModelRunnerOutput", "PlaceholderRange.is_embed", "SamplingParams",
	"SchedulerOutput", "SelfAttnBlockSpaceManager", "TokenizeChatRequest", "TokenizeCompletionRequest", "UniformTypeKVCacheSpecs", "ZmqEventPublisher",
	"_AsyncLLMEngine.step_async",
	// Modules' and runtimes'.
	"DevTools", "FlagErrorFunc", "JavaScript", "UndefinedBehaviorSanitizer", "decoderMaskedMultiheadAttention", "plot.DefaultTicks",
	"plot.LogScale", "runtime.debugCallV2",
	// Formats, algorithms, data and models.
	"AzurePublicDataset", "E2M1", "E4M3FN", "NeoX", "SplitMix64", "StarCoder", "SwiGLU", "YaRN",
}
