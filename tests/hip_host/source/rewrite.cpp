#include "rewrite.hpp"

#include <cctype>
#include <map>
#include <string_view>
#include <vector>

namespace hip_host {
namespace {

bool is_word(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) || letter == '_'; }
bool is_space(char letter) { return std::isspace(static_cast<unsigned char>(letter)); }

struct Scope {
    std::string name;
    std::size_t depth; // of its opening brace
};

struct Kernel {
    std::string scopes;
    std::string bounds; // as written: names in it are those of the kernel's namespace
};

class Rewriter {
  public:
    explicit Rewriter(std::string_view source) : source_(source) {}

    std::string run() {
        while (at_ < source_.size()) {
            const char letter = source_[at_];
            if (letter == '"' || letter == '\'')
                copy_literal();
            else if (letter == '#' && at_line_start())
                copy_until('\n');
            else if (is_word(letter))
                take_word();
            else
                take_other();
        }
        append_table();
        return std::move(result_);
    }

  private:
    bool at_line_start() const {
        const std::size_t end = result_.find_last_not_of(" \t");
        return end == std::string::npos || result_[end] == '\n';
    }

    void copy_until(char stop) {
        while (at_ < source_.size() && source_[at_] != stop)
            result_ += source_[at_++];
    }

    void copy_literal() {
        // A raw string has no escapes; what it holds is no code in any case.
        if (source_[at_] == '"' && !result_.empty() && result_.back() == 'R') {
            const std::size_t open = source_.find('(', at_);
            const std::string close = ")" + std::string(source_.substr(at_ + 1, open - at_ - 1)) + "\"";
            const std::size_t end = source_.find(close, open);
            const std::size_t length = (end == std::string_view::npos ? source_.size() : end + close.size()) - at_;
            result_ += source_.substr(at_, length);
            at_ += length;
            return;
        }
        const char quote = source_[at_];
        // A quote between digits separates them: 1'000.
        const bool separator = quote == '\'' && !result_.empty() && is_word(result_.back());
        result_ += source_[at_++];
        while (!separator && at_ < source_.size()) {
            const char letter = source_[at_];
            result_ += source_[at_++];
            if (letter == '\\' && at_ < source_.size())
                result_ += source_[at_++];
            else if (letter == quote || letter == '\n')
                break;
        }
    }

    // Braces are counted to know which namespaces a kernel is in.
    void take_other() {
        const char letter = source_[at_++];
        result_ += letter;
        if (letter == '{')
            ++depth_;
        if (letter != '}')
            return;
        if (!scopes_.empty() && scopes_.back().depth == depth_)
            scopes_.pop_back();
        --depth_;
    }

    // `namespace a::b {`, with attributes or `inline` around it; not an alias or a directive.
    void take_namespace() {
        std::string names;
        while (at_ < source_.size() && (is_word(source_[at_]) || is_space(source_[at_]) || source_[at_] == ':')) {
            if (!is_space(source_[at_]))
                names += source_[at_];
            result_ += source_[at_++];
        }
        if (at_ < source_.size() && source_[at_] == '{' && !names.empty())
            scopes_.push_back({names, depth_ + 1});
    }

    // The namespaces here, as `a::b`.
    std::string scopes() const {
        std::string result;
        for (const Scope& scope : scopes_)
            result += (result.empty() ? "" : "::") + scope.name;
        return result;
    }

    std::string_view next_word() {
        const std::size_t begin = at_;
        while (at_ < source_.size() && is_word(source_[at_]))
            ++at_;
        return source_.substr(begin, at_ - begin);
    }

    void skip_space() {
        while (at_ < source_.size() && is_space(source_[at_]))
            result_ += source_[at_++];
    }

    // The text between a bracket and its partner, both left out. The position ends behind the partner.
    std::string_view take_brackets() {
        std::size_t depth = 0;
        const std::size_t begin = at_ + 1;
        for (; at_ < source_.size(); ++at_) {
            if (source_[at_] == '(')
                ++depth;
            else if (source_[at_] == ')' && --depth == 0)
                return source_.substr(begin, at_++ - begin);
        }
        return source_.substr(begin);
    }

    void take_word() {
        const std::string_view word = next_word();
        if (word == "__global__") {
            take_kernel();
        } else if (word == "__launch_bounds__") {
            skip_space();
            take_bounds();
        } else if (word == "extern" || word == "static") {
            const std::size_t begin = at_;
            if (!take_qualified_shared(word == "extern")) {
                at_ = begin;
                result_ += word;
            }
        } else if (word == "__shared__") {
            take_shared();
        } else if (word == "namespace") {
            result_ += word;
            take_namespace();
        } else {
            result_ += word;
        }
    }

    void take_bounds() {
        const std::string_view inside = take_brackets();
        std::size_t depth = 0, end = 0;
        for (; end < inside.size() && !(inside[end] == ',' && depth == 0); ++end)
            depth += inside[end] == '(' ? 1 : inside[end] == ')' ? -1 : 0;
        bounds_ = std::string(inside.substr(0, end));
    }

    // From behind __global__ to the parameters: the name is the last word before them.
    void take_kernel() {
        const std::size_t before = result_.find_last_not_of(" \t\n");
        const bool is_template = before != std::string::npos && result_[before] == '>';
        std::string name;
        while (at_ < source_.size() && source_[at_] != ';' && source_[at_] != '{') {
            if (source_[at_] == '(')
                break;
            if (!is_word(source_[at_])) {
                result_ += source_[at_++];
                continue;
            }
            const std::string_view word = next_word();
            if (word == "__launch_bounds__") {
                skip_space();
                take_bounds();
            } else if (word == "__attribute__" || word == "alignas") {
                result_ += word;
                skip_space();
                const std::string_view inside = take_brackets();
                result_ += "(" + std::string(inside) + ")";
            } else {
                name = std::string(word);
                result_ += word;
            }
        }
        if (!is_template && !name.empty()) {
            Kernel& kernel = kernels_[name];
            kernel.scopes = scopes();
            if (!bounds_.empty()) // the bounds may stand at the declaration, or at the definition
                kernel.bounds = bounds_;
        }
        bounds_.clear();
    }

    // alignas must lead a declaration that begins with `static __thread`.
    void take_shared() {
        std::string alignment;
        const std::size_t begin = at_;
        while (at_ < source_.size() && is_space(source_[at_]))
            ++at_;
        if (source_.substr(at_, 7) == "alignas") {
            next_word();
            while (at_ < source_.size() && is_space(source_[at_]))
                ++at_;
            alignment = "alignas(" + std::string(take_brackets()) + ") ";
        } else {
            at_ = begin;
        }
        result_ += alignment + "static __thread ";
    }

    // `static __shared__ ...` and `extern ... __shared__ T name[];`. False where it is neither.
    bool take_qualified_shared(bool is_extern) {
        const std::size_t end = source_.find_first_of(";{}=", at_);
        if (end == std::string_view::npos || source_[end] != ';')
            return false;
        const std::string_view statement = source_.substr(at_, end - at_);
        const std::size_t marker = statement.find("__shared__");
        if (marker == std::string_view::npos)
            return false;
        if (!is_extern) {
            at_ += marker + std::string_view("__shared__").size();
            result_ += statement.substr(0, marker);
            take_shared();
            return true;
        }
        return take_dynamic_shared(std::string(statement), end);
    }

    bool take_dynamic_shared(std::string statement, std::size_t end) {
        statement.replace(statement.find("__shared__"), std::string_view("__shared__").size(), "");
        for (const char* attribute : {"__attribute__", "alignas"}) {
            const std::size_t begin = statement.find(attribute);
            if (begin == std::string::npos)
                continue;
            Rewriter brackets(statement);
            brackets.at_ = statement.find('(', begin);
            brackets.take_brackets();
            statement.erase(begin, brackets.at_ - begin);
        }
        const std::size_t open = statement.find('[');
        if (open == std::string::npos)
            return false;
        std::size_t last = open;
        while (last > 0 && is_space(statement[last - 1]))
            --last;
        std::size_t first = last;
        while (first > 0 && is_word(statement[first - 1]))
            --first;
        const std::string name = statement.substr(first, last - first), type = statement.substr(0, first);
        result_ += type + "* const " + name + " = static_cast<" + type + "*>(hip_host_current->block->dynamic_shared);";
        at_ = end + 1;
        return true;
    }

    void append_table() {
        result_ += "\n# 1 \"hip_host_table\"\n";
        for (const auto& [name, kernel] : kernels_)
            result_ += (kernel.scopes.empty() ? "namespace {" : "namespace " + kernel.scopes + " {") +
                       " constexpr unsigned hip_host_bounds_" + name + " = " +
                       (kernel.bounds.empty() ? "0" : kernel.bounds) + "; }\n";
        result_ += "extern \"C\" { extern const hip_host_kernel hip_host_kernels[]; }\n"
                   "const hip_host_kernel hip_host_kernels[] = {\n";
        for (const auto& [name, kernel] : kernels_)
            result_ += "    hip_host::Kernel<&" + kernel.scopes + "::" + name + ">::entry(\"" + name + "\", " +
                       kernel.scopes + "::hip_host_bounds_" + name + "),\n";
        // One thread-local variable of the module leads to all of them.
        result_ += "    {nullptr, nullptr, nullptr, 0, 0},\n};\n"
                   "extern \"C\" char* hip_host_shared_anchor() {\n"
                   "    static __thread char anchor;\n    return &anchor;\n}\n";
    }

    std::string_view source_;
    std::size_t at_ = 0;
    std::string result_;
    std::size_t depth_ = 0;
    std::string bounds_;
    std::vector<Scope> scopes_;
    std::map<std::string, Kernel> kernels_;
};

} // namespace

std::string rewrite_kernels(const std::string& preprocessed) { return Rewriter(preprocessed).run(); }

} // namespace hip_host
