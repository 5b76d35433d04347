package examples_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"go.yaml.in/yaml/v3"

	"github.com/gpufleet/terraform-provider-gpu/internal/fake/rig"
)

// Secrets of pipelines, as the table of the README names them. Their values are marks, to be looked for in what comes out.
const (
	readersKey   = "the reader's key"
	operatorsKey = "the operator's key"
	commentToken = "the comment token"
	serversToken = "the server's token"
)

var secrets = []string{readersKey, operatorsKey, commentToken, serversToken}

// mark has nothing that a text would have to escape.
func mark(secret string) string { return "MARK" + hex.EncodeToString([]byte(secret)) }

// ofVariable is which secret a variable has, by the name that the files give it.
var ofVariable = map[string]string{
	"GPU_READER_KEY": readersKey, "GPU_OPERATOR_KEY": operatorsKey, "COMMENT_TOKEN": commentToken, "ATLANTIS_GH_TOKEN": serversToken,
}

// What a branch changes to read what it can: each of these tells its whole environment.
const (
	hostileWord   = "FROM-THE-BRANCH"
	hostileScript = "#!/bin/sh\nenv\necho " + hostileWord + "\nenv >forecast.md\n"
	hostileFilter = `"` + hostileWord + ` \($ENV)"`
	hostileRecord = `{"recorded":[{"at":"` + hostileWord + `"}]}`
)

// cliStandIn is a CLI that runs what a branch has in its configuration: a file hostile.sh stands for a module, a provider, or
// the program that local names. What it tells is in the log and, as the address of a resource, in the plan.
const cliStandIn = `#!/bin/sh
[ ! -e hostile.sh ] || [ "$1" = show ] || sh ./hostile.sh
case $1 in
plan) echo plan >gpus.tfplan ;;
show)
	said='"gpu_partition_config.vdi"'
	[ ! -e hostile.sh ] || said='($ENV | tostring)'
	jq -n "{resource_changes: [{mode: \"managed\", type: \"gpu_partition_config\", address: $said, change: {actions: [\"create\"]}}]}"
	;;
esac
`

// site is where a pipeline runs: repositories, a machine's folders, programs, and what comes out.
type site struct {
	t    *testing.T
	root string // has the folders of the machine: opt, etc, tmp, mnt; main and branch of the repository; and work
	out  strings.Builder
}

// newSite makes a repository whose branch is hostile, and one that is not.
func newSite(t *testing.T) *site {
	t.Helper()
	for _, tool := range []string{"bash", "jq"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %[1]s: apt-get install --no-install-recommends %[1]s", tool)
		}
	}
	s := &site{t: t, root: t.TempDir()}
	files := map[string]string{}
	for _, name := range []string{"gpus", "forecast.jq", "stack/main.tf", "stack/recorded.json"} {
		raw, err := os.ReadFile(filepath.Join(gitopsDir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(raw)
	}
	for name, text := range files {
		for _, dir := range []string{"main/gpus", "branch/gpus", "opt/gpus", "etc/atlantis", "mnt/workspace"} {
			s.write(path.Join(dir, name), text)
			s.write(path.Join(dir, path.Base(name)), text) // where it is without a folder stack
		}
	}
	s.write("branch/gpus/gpus", hostileScript)
	s.write("branch/gpus/forecast.jq", hostileFilter)
	s.write("branch/gpus/stack/recorded.json", hostileRecord)
	s.write("branch/gpus/stack/settings.json", hostileRecord)
	s.write("branch/gpus/stack/hostile.sh", hostileScript)
	s.write("bin/terraform", cliStandIn)
	s.write("bin/conftest", "#!/bin/sh\necho \"conftest $*\"\n")
	s.write("bin/gh", "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" != --body-file ] || cat \"$2\"; shift; done\n") // the comment is output
	s.write("bin/curl", "#!/bin/sh\ncat\n")
	s.write("bin/git", "#!/bin/sh\n[ \"$1\" != show ] || cat \""+s.root+"/main/${2#FETCH_HEAD:}\"\n")
	s.write("tmp/.keep", "")
	return s
}

func (s *site) write(name, text string) {
	s.t.Helper()
	file := filepath.Join(s.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
		s.t.Fatal(err)
	}
}

// copy is a checkout, or files that go from one job to another.
func (s *site) copy(from, to string) {
	s.t.Helper()
	if info, err := os.Stat(from); err == nil && !info.IsDir() {
		to = filepath.Join(to, filepath.Base(from))
		raw, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o700)
		}
		if err == nil {
			err = os.WriteFile(to, raw, 0o700)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if out, err := exec.CommandContext(s.t.Context(), "cp", "-r", from+"/.", to).CombinedOutput(); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
}

// sh runs a command as a step of a pipeline does. What it says comes out.
func (s *site) sh(dir, command string, env map[string]string) string {
	s.t.Helper()
	command = regexp.MustCompile(`/(?:opt|etc/atlantis|mnt/workspace|tmp)/`).
		ReplaceAllStringFunc(command, func(dir string) string { return s.root + dir })
	cmd := exec.CommandContext(s.t.Context(), "bash", "-e", "-c", command)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + filepath.Join(s.root, "bin") + ":" + os.Getenv("PATH")}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	said, err := cmd.CombinedOutput()
	s.out.Write(said)
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", command, err, said)
	}
	return string(said)
}

// keep lets the files of a folder come out: a comment, an artifact, a job's summary.
func (s *site) keep(dir string, names ...string) {
	for _, name := range names {
		raw, _ := os.ReadFile(filepath.Join(dir, name)) // not every job leaves each
		s.out.Write(raw)
	}
}

// read are the secrets that came out.
func (s *site) read() []string {
	said := s.out.String()
	s.out.Reset()
	return slices.DeleteFunc(slices.Clone(secrets), func(secret string) bool { return !strings.Contains(said, mark(secret)) })
}

// holds evaluates a condition of GitHub's or GitLab's, which are written alike but for quotes and dollars.
func holds(t *testing.T, condition string, variables map[string]cty.Value) bool {
	t.Helper()
	if condition == "" {
		return true
	}
	expr, diags := hclsyntax.ParseExpression([]byte(strings.NewReplacer("'", `"`, "$", "").Replace(condition)), "condition", hcl.InitialPos)
	if diags.HasErrors() {
		t.Fatalf("%s: %v", condition, diags)
	}
	value, diags := expr.Value(&hcl.EvalContext{Variables: variables})
	if diags.HasErrors() {
		t.Fatalf("%s: %v", condition, diags)
	}
	return value.True()
}

// reads says what of the secrets can be read at each stage, in the order of the table's columns.
type reads [4][]string

func decode[T any](t *testing.T, file string) T {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(gitopsDir, file))
	if err != nil {
		t.Fatal(err)
	}
	var out T
	if err := yaml.Unmarshal(raw, &out); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return out
}

// says wants a sentence in the comments of a file: what the settings of a system have to be is in none of its keys.
func says(t *testing.T, file string, sentences ...string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(gitopsDir, file))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(strings.ReplaceAll(string(raw), "#", " ")), " ")
	for _, sentence := range sentences {
		if !strings.Contains(text, sentence) {
			t.Errorf("%s does not say %q", file, sentence)
		}
	}
}

// The table in the README says who can read which key. Each file's steps are carried out on a hostile branch and on main, with a
// mark for each secret where the system puts it, and what comes out is what the table says.
func TestGitOpsTellWhoReadsWhichKey(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(gitopsDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]reads{}
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(line, "|")
		if len(cells) != 8 {
			continue
		}
		var row reads
		for i := range row {
			row[i] = slices.DeleteFunc(slices.Clone(secrets), func(secret string) bool { return !strings.Contains(cells[i+2], secret) })
		}
		rows[strings.TrimSpace(cells[1])] = row
	}
	says(t, "../../templates/guides/hosts.md.tmpl", "Give no key to a job that plans pull requests") // the guide and the table are of one mind
	for system, walk := range map[string]func(*testing.T) reads{
		"GitHub Actions": walkGitHub, "GitLab CI": walkGitLab, "Atlantis": walkAtlantis,
		"Flux": walkFlux, "Spacelift": walkSpacelift, "Terragrunt": walkTerragrunt,
	} {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			want, ok := rows[system]
			if !ok {
				t.Fatalf("the README has no row for %s, only %q", system, rig.Keys(rows))
			}
			if diff := cmp.Diff(want, walk(t), cmp.Transformer("set", func(s []string) string { return strings.Join(s, ", ") })); diff != "" {
				t.Errorf("who can read which key (-README +seen):\n%s", diff)
			}
		})
	}
}

// wantNoHostile asserts that nothing of the branch's made what an approver reads.
func wantNoHostile(t *testing.T, comment string, wants ...string) {
	t.Helper()
	if strings.Contains(comment, hostileWord) {
		t.Errorf("the branch wrote the comment:\n%s", comment)
	}
	for _, want := range wants {
		if !strings.Contains(comment, want) {
			t.Errorf("the comment has no %q:\n%s", want, comment)
		}
	}
}

type githubStep struct {
	If, Uses, Run string
	With, Env     map[string]string
}

type githubWorkflow struct {
	Defaults struct {
		Run struct {
			Dir string `yaml:"working-directory"`
		}
	}
	Jobs map[string]struct {
		If, Environment string
		Needs           string
		Permissions     map[string]string
		Env             map[string]string
		Steps           []githubStep
	}
}

// githubSecrets are the secrets of each environment of the repository.
var githubSecrets = map[string]string{"gpus-read": "GPU_READER_KEY", "gpus-production": "GPU_OPERATOR_KEY"}

func walkGitHub(t *testing.T) reads {
	const file = "github-actions/gpus.yml"
	says(t, file, "Environment gpus-read has GPU_READER_KEY, gpus-production has GPU_OPERATOR_KEY and required reviewers",
		"Deployment branches of both: main only")
	w := decode[githubWorkflow](t, file)
	var out reads
	out[0] = walkGitHubEvent(t, w, "pull_request", "refs/pull/1/merge", "branch")["comment"]
	out[1] = []string{commentToken} // the workflow's own: a branch's file may ask for the right to write, and has no environment
	merged := walkGitHubEvent(t, w, "push", "refs/heads/main", "main")
	for _, event := range []string{"workflow_dispatch", "schedule", "push"} {
		if ran := walkGitHubEvent(t, w, event, "refs/heads/feature", "branch")["ran"]; ran != nil {
			t.Errorf("%s on a branch runs %q", event, ran)
		}
	}
	out[2], out[3] = merged["plan"], merged["apply"]
	for id, job := range w.Jobs {
		if job.Permissions["contents"] == "write" || job.Permissions["id-token"] != "" || job.Permissions["actions"] != "" {
			t.Errorf("%s has the rights %v", id, job.Permissions)
		}
	}
	return out
}

// walkGitHubEvent runs the jobs of an event. Of each stage it returns what its environment held; of a pull request, what came out.
func walkGitHubEvent(t *testing.T, w githubWorkflow, event, ref, tree string) map[string][]string {
	t.Helper()
	s := newSite(t)
	got := map[string][]string{}
	github := cty.ObjectVal(map[string]cty.Value{"event_name": cty.StringVal(event), "ref": cty.StringVal(ref)})
	for _, id := range []string{"propose", "comment", "plan", "apply", "drift"} {
		job, ok := w.Jobs[id]
		if !ok || len(w.Jobs) != 5 {
			t.Fatalf("the workflow has other jobs than are walked: %q", rig.Keys(w.Jobs))
		}
		if !holds(t, job.If, map[string]cty.Value{"github": github}) {
			continue
		}
		got["ran"] = append(got["ran"], id)
		workspace, temp := filepath.Join(s.root, "work", id), filepath.Join(s.root, "temp", id)
		for _, dir := range []string{workspace, temp} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		expand := func(text string) string {
			return regexp.MustCompile(`\$\{\{ (\S+) \}\}`).ReplaceAllStringFunc(text, func(e string) string {
				switch name := strings.Trim(e, "${} "); {
				case name == "github.token":
					return mark(commentToken)
				case name == "github.workspace":
					return workspace
				case name == "runner.temp":
					return temp
				case name == "github.event.repository.default_branch":
					return "main"
				case name == "github.event.number":
					return "1"
				case strings.TrimPrefix(name, "secrets.") == githubSecrets[job.Environment]:
					return mark(ofVariable[githubSecrets[job.Environment]])
				default:
					t.Errorf("%s reads %s, which it does not have", id, name)
					return ""
				}
			})
		}
		held := map[string]string{}
		for _, step := range job.Steps {
			env := map[string]string{"GITHUB_WORKSPACE": workspace, "RUNNER_TEMP": temp, "GITHUB_STEP_SUMMARY": filepath.Join(temp, "summary")}
			for _, more := range []map[string]string{job.Env, step.Env} {
				for name, value := range more {
					env[name] = expand(value)
				}
			}
			maps.Copy(held, env)
			action, _, _ := strings.Cut(step.Uses, "@")
			switch {
			case strings.Contains(step.If, "failure()"):
			case step.Run != "":
				s.sh(filepath.Join(workspace, w.Defaults.Run.Dir), step.Run, env)
			case action == "actions/checkout":
				from := tree
				if r := expand(step.With["ref"]); r != "" {
					from = r
				}
				if step.With["persist-credentials"] != "false" {
					t.Errorf("%s leaves the token in the checkout", id)
				}
				s.copy(filepath.Join(s.root, from), filepath.Join(workspace, step.With["path"]))
			case action == "actions/upload-artifact":
				s.keep(workspace, step.With["path"])
				s.copy(filepath.Join(workspace, step.With["path"]), filepath.Join(s.root, "artifacts", step.With["name"]))
			case action == "actions/download-artifact":
				to := expand(step.With["path"])
				if !filepath.IsAbs(to) {
					to = filepath.Join(workspace, to)
				}
				s.copy(filepath.Join(s.root, "artifacts", step.With["name"]), to)
			case action == "hashicorp/setup-terraform":
			default:
				t.Fatalf("%s: %+v is not walked", id, step)
			}
		}
		came := s.out.String()
		if event == "pull_request" {
			got["comment"] = s.read()
			if id == "comment" {
				wantNoHostile(t, came, "### GPUs", "Planned on a recording of ")
			}
			if len(got["comment"]) > 0 {
				return got
			}
			continue
		}
		if out := s.read(); len(out) > 0 {
			t.Errorf("%s tells %q", id, out)
		}
		_, _ = fmt.Fprint(&s.out, held)
		got[id] = s.read()
	}
	return got
}

type gitlabJob struct {
	Rules       []struct{ If, When string }
	Environment struct{ Name, Action string }
	Variables   map[string]string
	Needs       []string
	Before      []string `yaml:"before_script"`
	Script      []string
	Artifacts   struct{ Paths []string }
}

// gitlabVariables are the variables of the project: of which environment, and whether only protected branches have them.
var gitlabVariables = map[string]struct {
	environment string
	protected   bool
}{
	"GPU_READER_KEY": {"gpus-read", true}, "GPU_OPERATOR_KEY": {"gpus-production", true}, "COMMENT_TOKEN": {"gpus-comment", false},
}

func walkGitLab(t *testing.T) reads {
	const file = "gitlab/.gitlab-ci.yml"
	says(t, file, "GPU_READER_KEY is protected and of the environment gpus-read, GPU_OPERATOR_KEY protected and of gpus-production",
		"COMMENT_TOKEN is of the environment gpus-comment, and cannot be protected. Every member who may push a branch can read it")
	all := decode[map[string]yaml.Node](t, file)
	jobs := map[string]gitlabJob{}
	var before gitlabJob
	for name, node := range all {
		var job gitlabJob
		if name == "image" || name == "stages" {
			continue
		}
		if err := node.Decode(&job); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "default" {
			before = job
		} else {
			jobs[name] = job
		}
	}
	walk := func(source, branch, tree string, protected bool) map[string][]string {
		s := newSite(t)
		got := map[string][]string{}
		variables := map[string]cty.Value{}
		for name, value := range map[string]string{"CI_PIPELINE_SOURCE": source, "CI_COMMIT_BRANCH": branch, "CI_DEFAULT_BRANCH": "main"} {
			variables[name] = cty.StringVal(value)
		}
		for _, id := range []string{"propose", "comment", "plan", "apply", "drift"} {
			job, ok := jobs[id]
			if !ok || len(jobs) != 5 || len(job.Rules) != 1 {
				t.Fatalf("the file has other jobs than are walked: %q", rig.Keys(jobs))
			}
			if !holds(t, job.Rules[0].If, variables) {
				continue
			}
			got["ran"] = append(got["ran"], id)
			work := filepath.Join(s.root, "work", id)
			env := map[string]string{
				"CI_DEFAULT_BRANCH": "main", "CI_PROJECT_DIR": work, "CI_API_V4_URL": "https://git.example/api/v4",
				"CI_PROJECT_ID": "1", "CI_MERGE_REQUEST_IID": "1",
			}
			for name, v := range gitlabVariables {
				if v.environment == job.Environment.Name && (protected || !v.protected) {
					env[name] = mark(ofVariable[name])
				}
			}
			for name, value := range job.Variables {
				env[name] = strings.ReplaceAll(os.Expand(value, func(v string) string { return env[v] }), "/tmp/", s.root+"/tmp/")
			}
			s.copy(filepath.Join(s.root, tree), work)
			for _, need := range job.Needs {
				for _, p := range jobs[need].Artifacts.Paths {
					s.copy(filepath.Join(s.root, "work", need, p), filepath.Join(work, filepath.Dir(p)))
				}
			}
			script := before.Before
			if job.Before != nil {
				script = job.Before
			}
			came := s.sh(work, strings.Join(slices.Concat(script, job.Script), "\n"), env)
			s.keep(work, job.Artifacts.Paths...)
			out := s.read()
			if source == "merge_request_event" {
				got["out"] = append(got["out"], out...)
				if id == "comment" {
					wantNoHostile(t, came, "### GPUs", "Planned on a recording of ")
				}
				continue
			}
			if len(out) > 0 {
				t.Errorf("%s tells %q", id, out)
			}
			_, _ = fmt.Fprint(&s.out, env)
			got[id] = s.read()
		}
		return got
	}
	var out reads
	out[0] = walk("merge_request_event", "", "branch", false)["out"]
	for name, v := range gitlabVariables { // a branch's file may name any environment
		if !v.protected {
			out[1] = append(out[1], ofVariable[name])
		}
	}
	merged := walk("push", "main", "main", true)
	out[2], out[3] = merged["plan"], merged["apply"]
	for _, source := range []string{"push", "schedule", "web"} {
		if ran := walk(source, "feature", "branch", false)["ran"]; ran != nil {
			t.Errorf("%q run on a branch", ran)
		}
	}
	return out
}

type atlantisServer struct {
	Repos []struct {
		Workflow  string
		Overrides []string `yaml:"allowed_overrides"`
		Custom    bool     `yaml:"allow_custom_workflows"`
		Plan      []string `yaml:"plan_requirements"`
		Apply     []string `yaml:"apply_requirements"`
	}
	Workflows map[string]map[string]struct{ Steps []yaml.Node }
	Policies  struct {
		Sets []struct{ Path, Source string } `yaml:"policy_sets"`
	}
}

// walkAtlantis walks both servers. What a server's environment has is in its file.
func walkAtlantis(t *testing.T) reads {
	approved := func(requirements []string) bool {
		return slices.Contains(requirements, "approved") && slices.Contains(requirements, "undiverged")
	}
	walk := func(file, tree, stage string) []string {
		s := newSite(t)
		raw, err := os.ReadFile(filepath.Join(gitopsDir, file))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^# Environment: (.*)$`).FindSubmatch(raw)
		if m == nil {
			t.Fatalf("%s does not say what the server's environment has", file)
		}
		work := filepath.Join(s.root, "work")
		s.copy(filepath.Join(s.root, tree), work)
		stack := filepath.Join(work, "gpus/stack")
		env := map[string]string{"DIR": stack, "PLANFILE": filepath.Join(stack, "gpus.tfplan"), "SHOWFILE": filepath.Join(stack, "show.json")}
		for _, name := range strings.Split(string(m[1]), ", ") {
			if ofVariable[name] == "" {
				t.Fatalf("%s: what is %s?", file, name)
			}
			env[name] = mark(ofVariable[name])
		}
		server := decode[atlantisServer](t, file)
		for _, repo := range server.Repos {
			if len(repo.Overrides) > 0 || repo.Overrides == nil || repo.Custom {
				t.Errorf("%s: atlantis.yaml of a branch may change the workflow", file)
			}
			if strings.Contains(string(m[1]), "KEY") && (!approved(repo.Plan) || !approved(repo.Apply)) {
				t.Errorf("%s: a server with keys plans with %q and applies with %q", file, repo.Plan, repo.Apply)
			}
			for _, set := range server.Policies.Sets {
				if set.Source != "local" || !filepath.IsAbs(set.Path) {
					t.Errorf("%s: the policies are %+v", file, set)
				}
			}
			for _, node := range server.Workflows[repo.Workflow][stage].Steps {
				if node.Kind == yaml.ScalarNode {
					switch node.Value {
					case "show":
						s.sh(stack, `terraform show -json gpus.tfplan >"$SHOWFILE"`, env)
					default:
						s.sh(stack, "terraform "+node.Value, env)
					}
					continue
				}
				var step struct {
					Env  struct{ Name, Value, Command string }
					Run  string
					Plan map[string][]string
				}
				if err := node.Decode(&step); err != nil {
					t.Fatal(err)
				}
				switch {
				case step.Env.Command != "":
					before := s.out.String()
					env[step.Env.Name] = s.sh(stack, step.Env.Command, env)
					s.out.Reset()
					s.out.WriteString(before) // it is no step's output
				case step.Env.Name != "":
					env[step.Env.Name] = step.Env.Value
				case step.Run != "":
					wantNoHostile(t, s.sh(stack, step.Run, env), "### GPUs")
				case step.Plan != nil:
					s.sh(stack, "terraform plan", env)
				default:
					t.Fatalf("%s: a step is not walked", file)
				}
			}
		}
		return s.read()
	}
	var out reads
	out[0] = walk("atlantis/repos.yaml", "branch", "plan")
	out[1] = out[0] // the workflow is the server's
	// What is approved runs with the keys in any case.
	out[2], out[3] = walk("atlantis/operator.yaml", "branch", "plan"), walk("atlantis/operator.yaml", "branch", "apply")
	if told := walk("atlantis/operator.yaml", "main", "plan"); len(told) > 0 {
		t.Errorf("a plan tells %q", told)
	}
	says(t, "atlantis/operator.yaml", "--disable-autoplan", "The repository has to dismiss approvals when something is pushed")
	says(t, "atlantis/repos.yaml", "--allow-commands=version,plan,unlock,approve_policies")
	return out
}

// walkFlux reads which object plans what with which secret; there are no steps.
func walkFlux(t *testing.T) reads {
	const file = "flux/gpus.yaml"
	raw, err := os.ReadFile(filepath.Join(gitopsDir, file))
	if err != nil {
		t.Fatal(err)
	}
	var out reads
	branches, applies := map[string]string{}, 0
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	for {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct {
				Ref     struct{ Branch string }
				Source  struct{ Name string } `yaml:"sourceRef"`
				Approve string                `yaml:"approvePlan"`
				Runner  struct {
					Spec struct {
						EnvFrom []struct {
							Secret struct{ Name string } `yaml:"secretRef"`
						} `yaml:"envFrom"`
					}
				} `yaml:"runnerPodTemplate"`
			}
		}
		if decoder.Decode(&object) != nil {
			break
		}
		switch object.Kind {
		case "GitRepository":
			branches[object.Metadata.Name] = object.Spec.Ref.Branch
		case "Terraform":
			if branches[object.Spec.Source.Name] != "main" {
				t.Errorf("%s plans %q", object.Metadata.Name, branches[object.Spec.Source.Name])
			}
			for _, from := range object.Spec.Runner.Spec.EnvFrom {
				secret := map[string]string{"gpu-operator": operatorsKey, "gpu-reader": readersKey}[from.Secret.Name]
				if object.Spec.Approve == "disable" {
					if secret != readersKey {
						t.Errorf("%s looks for drift with %s", object.Metadata.Name, secret)
					}
					continue
				}
				applies++
				out[2], out[3] = append(out[2], secret), append(out[3], secret)
			}
		}
	}
	if applies != 1 {
		t.Errorf("%d objects apply", applies)
	}
	says(t, file, "the review of the merge guards the key", "Keep the Branch Planner off")
	return out
}

// walkSpacelift reads the stacks with their variables and push policies, and carries out their hooks.
func walkSpacelift(t *testing.T) reads {
	parsed, diags := hclparse.NewParser().ParseHCLFile(gitopsDir + "/spacelift/main.tf")
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	body, _ := parsed.Body.(*hclsyntax.Body)
	text := func(e hclsyntax.Expression) string { return string(e.Range().SliceBytes(parsed.Bytes)) }
	blocks := map[string]map[string]*hclsyntax.Body{}
	var hooks []string
	for _, b := range body.Blocks {
		switch b.Type {
		case "locals":
			v, diags := b.Body.Attributes["after_plan"].Expr.Value(nil)
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			for it := v.ElementIterator(); it.Next(); {
				_, hook := it.Element()
				hooks = append(hooks, hook.AsString())
			}
		case "resource":
			if blocks[b.Labels[0]] == nil {
				blocks[b.Labels[0]] = map[string]*hclsyntax.Body{}
			}
			blocks[b.Labels[0]][b.Labels[1]] = b.Body
		}
	}
	variables := func(stack string) map[string]string {
		env := map[string]string{}
		for _, v := range blocks["spacelift_environment_variable"] {
			if text(v.Attributes["stack_id"].Expr) != "spacelift_stack."+stack+".id" {
				continue
			}
			name := strings.Trim(text(v.Attributes["name"].Expr), `"`)
			if env[name] = strings.Trim(text(v.Attributes["value"].Expr), `"`); env[name] == "var.operator_key" {
				env[name] = mark(operatorsKey)
			}
		}
		return env
	}
	pushes := func(stack string) string { // what its one push policy says
		var policies []string
		for _, a := range blocks["spacelift_policy_attachment"] {
			name := strings.TrimSuffix(strings.TrimPrefix(text(a.Attributes["policy_id"].Expr), "spacelift_policy."), ".id")
			p := blocks["spacelift_policy"][name]
			if text(a.Attributes["stack_id"].Expr) == "spacelift_stack."+stack+".id" && text(p.Attributes["type"].Expr) == `"GIT_PUSH"` {
				policies = append(policies, text(p.Attributes["body"].Expr))
			}
		}
		if len(policies) != 1 {
			t.Fatalf("%s has %d push policies", stack, len(policies))
		}
		return policies[0]
	}
	walk := func(stack, tree string) []string {
		if blocks["spacelift_stack"][stack] == nil || text(blocks["spacelift_stack"][stack].Attributes["after_plan"].Expr) != "local.after_plan" {
			t.Fatalf("the stack %s has other hooks", stack)
		}
		s := newSite(t)
		work := filepath.Join(s.root, "work/source")
		s.copy(filepath.Join(s.root, tree), work)
		dir := filepath.Join(work, "gpus/stack")
		env := variables(stack)
		s.sh(dir, "terraform plan >plan.log; cat plan.log", env)
		for i, hook := range hooks {
			if said := s.sh(dir, hook, env); i == len(hooks)-1 {
				wantNoHostile(t, said, "### GPUs")
			}
		}
		return s.read()
	}
	var out reads
	for stack := range blocks["spacelift_stack"] {
		policy := pushes(stack)
		has := func(rule string) bool { return strings.Contains(policy, rule) }
		switch {
		case has("propose {") && !has("track {") && has("ignore { not propose }"):
			out[0] = append(out[0], walk(stack, "branch")...)
			out[1] = append(out[1], walk(stack, "branch")...) // .spacelift/config.yml is the stack's, and no more is there
		case has("track { input.push.branch == input.stack.branch }") && !has("propose {") && has("ignore { not track }"):
			for _, secret := range secrets {
				if strings.Contains(fmt.Sprint(variables(stack)), mark(secret)) {
					out[2], out[3] = append(out[2], secret), append(out[3], secret)
				}
			}
			if told := walk(stack, "main"); len(told) > 0 {
				t.Errorf("%s tells %q", stack, told)
			}
		default:
			t.Errorf("%s: what does %s do?", stack, policy)
		}
	}
	says(t, "spacelift/main.tf", "the review of the merge guards the key")
	return out
}

// walkTerragrunt only looks where the programs come from: the keys are those of the pipeline around it.
func walkTerragrunt(t *testing.T) reads {
	raw, err := os.ReadFile(gitopsDir + "/terragrunt/root.hcl")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?:jq -r -f|--policy) (\S+)`).FindAllStringSubmatch(string(raw), -1) {
		if !strings.HasPrefix(m[1], "/opt/") {
			t.Errorf("%s comes from the branch", m[1])
		}
	}
	return reads{}
}

// A pull request may name any program as the agent of this machine: it gets none of the keys, and the plan quotes what it says.
func TestGitOpsLocalAgentGetsNoKeys(t *testing.T) {
	t.Parallel()
	p := newPipeline(t)
	tool := filepath.Join(p.Dir, "tool.sh")
	rig.Write(t, tool, "#!/bin/sh\nenv >&2\nexit 1\n")
	p.fleet.Must(os.Chmod(tool, 0o700))
	rig.Write(t, filepath.Join(p.Dir, "main.tf"), `terraform {
  required_providers {
    gpu = { source = "gpufleet/gpu" }
  }
}
provider "gpu" {
  owner = "vdi-prod"
  hosts = { h = { local = { agent_path = "./tool.sh" } } }
}
data "gpu_inventory" "all" {}
`)
	p.Env = slices.DeleteFunc(p.Env, func(v string) bool { return strings.HasPrefix(v, "GPU_SIMULATED_FLEET=") })
	out, code := p.gpus("plan", "GPU_AGENT_HOST=seen", "GPU_SSH_PRIVATE_KEY="+mark(operatorsKey), "GPU_SSH_PASSWORD="+mark(operatorsKey),
		"GPU_READER_KEY="+mark(readersKey), "COMMENT_TOKEN="+mark(commentToken))
	if code != 1 || !strings.Contains(out, "GPU_AGENT_HOST=seen") {
		t.Errorf("exit code %d: the program did not run:\n%s", code, out)
	}
	if strings.Contains(out, "MARK") {
		t.Errorf("the plan tells a key:\n%s", out)
	}
}
