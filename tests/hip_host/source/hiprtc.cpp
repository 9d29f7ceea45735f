// hiprtc: HIP source to a code object, through the host's compiler.
#include "code_object.hpp"
#include "hip_host.hpp"
#include "process.hpp"
#include "rewrite.hpp"

#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <vector>

using namespace hip_host;

enum hiprtcResult {
    HIPRTC_SUCCESS = 0,
    HIPRTC_ERROR_OUT_OF_MEMORY = 1,
    HIPRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
    HIPRTC_ERROR_INVALID_INPUT = 3,
    HIPRTC_ERROR_INVALID_PROGRAM = 4,
    HIPRTC_ERROR_INVALID_OPTION = 5,
    HIPRTC_ERROR_COMPILATION = 6,
    HIPRTC_ERROR_INTERNAL_ERROR = 11,
};

struct Program {
    std::string source;
    std::string name;
    std::vector<std::pair<std::string, std::string>> headers; // name and text
    std::string log;
    std::string code;
};
using hiprtcProgram = Program*;

namespace {

Registry<Program>& programs() {
    static auto& instance = *new Registry<Program>("program");
    return instance;
}

template <class Body> hiprtcResult call(const char* function, hiprtcResult natural, Body&& body) {
    if (const int injected = injected_failure(function, natural))
        return static_cast<hiprtcResult>(injected);
    return body();
}

template <class Body> hiprtcResult with_program(const char* function, hiprtcProgram program, Body&& body) {
    return call(function, HIPRTC_ERROR_INVALID_PROGRAM,
                [&] { return programs().contains(program) ? body(*program) : HIPRTC_ERROR_INVALID_PROGRAM; });
}

// The folder that holds lib/ and include/.
std::filesystem::path installation() {
    Dl_info info{};
    dladdr(reinterpret_cast<const void*>(&installation), &info);
    return std::filesystem::canonical(info.dli_fname).parent_path().parent_path();
}

bool starts_with(const std::string& text, const char* start) { return text.compare(0, std::strlen(start), start) == 0; }

struct Options {
    std::string target = target_name();
    std::vector<std::string> compiler; // passed on
    std::string refused;               // the first one that is not understood
};

// Options of the device compiler that mean nothing for the host's. Tests spend more time on compiling than in kernels,
// so how much a kernel is optimised is not the caller's choice.
bool is_for_a_gpu_only(const std::string& option) {
    for (const char* start : {"-O", "-fgpu", "-fno-gpu", "-fhip", "-munsafe-fp-atomics", "-mno-unsafe-fp-atomics",
                              "-mcumode", "-mno-cumode", "--rocm-path", "--hip-", "-nogpu"})
        if (starts_with(option, start))
            return true;
    return false;
}

bool is_for_any_compiler(const std::string& option) {
    for (const char* start : {"-D", "-U", "-I", "-W", "-w", "-g", "-f", "-std=", "-isystem", "-include"})
        if (starts_with(option, start))
            return true;
    return false;
}

Options sort_options(const std::vector<std::string>& given) {
    Options options;
    for (std::size_t index = 0; index < given.size(); ++index) {
        const std::string& option = given[index];
        if (starts_with(option, "--offload-arch=") || starts_with(option, "--gpu-architecture="))
            options.target = option.substr(option.find('=') + 1);
        else if (starts_with(option, "--std="))
            options.compiler.push_back(option.substr(1));
        else if (option == "-mllvm")
            ++index;
        else if (is_for_a_gpu_only(option))
            continue;
        else if (is_for_any_compiler(option)) {
            options.compiler.push_back(option);
            if ((option == "-D" || option == "-U" || option == "-I" || option == "-isystem" || option == "-include") &&
                index + 1 < given.size())
                options.compiler.push_back(given[++index]);
        } else if (options.refused.empty())
            options.refused = option;
    }
    return options;
}

std::optional<int> wave_size_of(const std::string& target) {
    if (target == target_name())
        return wave_size();
    if (target == "host32")
        return 32;
    if (target == "host64")
        return 64;
    return std::nullopt;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
}

std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// What the caller wrote keeps its name and lines in the compiler's messages, whatever the folder is called.
std::string without(const std::string& folder, std::string text) {
    for (std::size_t at = 0; (at = text.find(folder, at)) != std::string::npos;)
        text.erase(at, folder.size());
    return text;
}

// What is the same after the preprocessor, for both wave sizes or in several processes, is compiled once.
void keep(const std::string& object, const std::filesystem::path& path, const std::filesystem::path& temporary) {
    const auto fresh = path.parent_path() / temporary;
    write_file(fresh, object);
    std::filesystem::rename(fresh, path);
}

bool run_compiler(Program& program, const std::vector<std::string>& command) {
    const Outcome outcome = run_program(command);
    program.log += outcome.output;
    return outcome.status == 0;
}

hiprtcResult compile(Program& program, const std::vector<std::string>& given) {
    program.log.clear();
    program.code.clear();
    const Options options = sort_options(given);
    if (!options.refused.empty()) {
        program.log = "error: unknown option '" + options.refused + "'\n";
        return HIPRTC_ERROR_COMPILATION;
    }
    const std::optional<int> wave = wave_size_of(options.target);
    if (!wave) {
        program.log = "error: this runtime compiles for " + target_name() + ", host32 and host64, not for '" +
                      options.target + "'\n";
        return HIPRTC_ERROR_COMPILATION;
    }
    const TemporaryFolder folder;
    const std::filesystem::path root = folder.path(), install = installation();
    for (const auto& [name, text] : program.headers)
        write_file(root / "include" / name, text);
    write_file(root / "source.cpp", "# 1 \"" + program.name + "\"\n" + program.source);

    const char* chosen = std::getenv("HIP_HOST_CXX");
    const std::string compiler = chosen && *chosen ? chosen : "g++";
    std::vector<std::string> preprocess = {compiler, "-E", "-x", "c++", "-std=c++17", "-DHIP_HOST=1",
                                           "-D__HIPCC_RTC__=1", "-D__HIP_PLATFORM_AMD__=1",
                                           "-DHIP_HOST_WAVE_SIZE=" + std::to_string(*wave),
                                           // To inline all that each of a thousand kernels calls takes two thirds of
                                           // the compiler's time.
                                           "-Dalways_inline=unused", "-I" + (root / "include").string(), "-isystem",
                                           (install / "include").string(), "-include", "hip/hip_runtime.h"};
    std::vector<std::string> translate = {compiler, "-x", "c++-cpp-output", "-std=c++17", "-Og", "-fPIC", "-shared",
                                          // The host's arithmetic is the source's: no contraction, no reordering.
                                          "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
                                          // Wide accesses through casts are common in kernels.
                                          "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti",
                                          "-fno-semantic-interposition", "-fno-stack-protector"};
    preprocess.insert(preprocess.end(), options.compiler.begin(), options.compiler.end());
    for (std::size_t index = 0; index < options.compiler.size(); ++index) {
        const std::string& option = options.compiler[index];
        const bool for_preprocessor = starts_with(option, "-D") || starts_with(option, "-U") ||
                                      starts_with(option, "-I") || starts_with(option, "-i");
        if (!for_preprocessor)
            translate.push_back(option);
        else if (option.size() == 2 || option[1] == 'i')
            ++index;
    }
    preprocess.insert(preprocess.end(), {(root / "source.cpp").string(), "-o", (root / "expanded.ii").string()});
    if (!run_compiler(program, preprocess))
        return HIPRTC_ERROR_COMPILATION;
    const std::string text = rewrite_kernels(without(root / "", read_file(root / "expanded.ii")));
    translate.push_back("-Wno-unknown-pragmas"); // `#pragma unroll` is the device compiler's
    const char* added = std::getenv("HIP_HOST_CXXFLAGS");
    std::istringstream words(added ? added : "");
    for (std::string word; words >> word;)
        translate.push_back(word);
    if (compiler.find("clang") == std::string::npos)
        // A shared variable of a template must not be the same one in every module of the process.
        translate.push_back("-fno-gnu-unique");
    std::string key = text;
    for (const std::string& word : translate)
        key += '\n' + word;
    const auto kept = install / "compiled" / (std::to_string(checksum(key.data(), key.size())) + ".so");
    std::string object = read_file(kept);
    if (object.empty()) {
        write_file(root / "kernels.ii", text);
        // Kernels reach the runtime by its soname, which is loaded already.
        translate.insert(translate.end(), {(root / "kernels.ii").string(), "-o", (root / "kernels.so").string(),
                                           "-Wl,-Bsymbolic", "-L" + (install / "lib").string(), "-lamdhip64", "-lm"});
        if (!run_compiler(program, translate))
            return HIPRTC_ERROR_COMPILATION;
        object = read_file(root / "kernels.so");
        if (program.log.empty())
            keep(object, kept, root.filename());
    }
    program.code = pack_code_object(options.target, object);
    return HIPRTC_SUCCESS;
}

} // namespace

HIP_HOST_API hiprtcResult hiprtcVersion(int* major, int* minor) {
    return call("hiprtcVersion", HIPRTC_ERROR_INVALID_INPUT, [&] {
        if (!major || !minor)
            return HIPRTC_ERROR_INVALID_INPUT;
        *major = 9; // hiprtc counts on its own, apart from HIP
        *minor = 0;
        return HIPRTC_SUCCESS;
    });
}

HIP_HOST_API const char* hiprtcGetErrorString(hiprtcResult result) {
    switch (result) {
    case HIPRTC_SUCCESS:
        return "HIPRTC_SUCCESS";
    case HIPRTC_ERROR_OUT_OF_MEMORY:
        return "HIPRTC_ERROR_OUT_OF_MEMORY";
    case HIPRTC_ERROR_PROGRAM_CREATION_FAILURE:
        return "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case HIPRTC_ERROR_INVALID_INPUT:
        return "HIPRTC_ERROR_INVALID_INPUT";
    case HIPRTC_ERROR_INVALID_PROGRAM:
        return "HIPRTC_ERROR_INVALID_PROGRAM";
    case HIPRTC_ERROR_INVALID_OPTION:
        return "HIPRTC_ERROR_INVALID_OPTION";
    case HIPRTC_ERROR_COMPILATION:
        return "HIPRTC_ERROR_COMPILATION";
    case HIPRTC_ERROR_INTERNAL_ERROR:
        return "HIPRTC_ERROR_INTERNAL_ERROR";
    }
    return "HIPRTC_ERROR_UNKNOWN";
}

HIP_HOST_API hiprtcResult hiprtcCreateProgram(hiprtcProgram* program, const char* source, const char* name,
                                              int header_count, const char* const* headers,
                                              const char* const* include_names) {
    return call("hiprtcCreateProgram", HIPRTC_ERROR_PROGRAM_CREATION_FAILURE, [&] {
        if (!program || !source || header_count < 0 || (header_count && (!headers || !include_names)))
            return HIPRTC_ERROR_INVALID_INPUT;
        auto* created = new Program{source, name && *name ? name : "program.hip", {}, {}, {}};
        for (int index = 0; index < header_count; ++index)
            created->headers.emplace_back(include_names[index], headers[index]);
        *program = programs().add(created);
        return HIPRTC_SUCCESS;
    });
}

HIP_HOST_API hiprtcResult hiprtcDestroyProgram(hiprtcProgram* program) {
    return call("hiprtcDestroyProgram", HIPRTC_ERROR_INVALID_PROGRAM, [&] {
        if (!program)
            return HIPRTC_ERROR_INVALID_INPUT;
        if (!programs().destroy(*program))
            return HIPRTC_ERROR_INVALID_PROGRAM;
        *program = nullptr;
        return HIPRTC_SUCCESS;
    });
}

HIP_HOST_API hiprtcResult hiprtcCompileProgram(hiprtcProgram program, int count, const char* const* options) {
    return with_program("hiprtcCompileProgram", program, [&](Program& known) {
        if (count < 0 || (count && !options))
            return HIPRTC_ERROR_INVALID_INPUT;
        try {
            return compile(known, {options, options + count});
        } catch (const std::exception& error) {
            known.log += std::string("error: ") + error.what() + "\n";
            return HIPRTC_ERROR_INTERNAL_ERROR;
        }
    });
}

HIP_HOST_API hiprtcResult hiprtcGetProgramLogSize(hiprtcProgram program, std::size_t* bytes) {
    return with_program("hiprtcGetProgramLogSize", program, [&](Program& known) {
        return bytes ? (*bytes = known.log.size() + 1, HIPRTC_SUCCESS) : HIPRTC_ERROR_INVALID_INPUT;
    });
}

HIP_HOST_API hiprtcResult hiprtcGetProgramLog(hiprtcProgram program, char* log) {
    return with_program("hiprtcGetProgramLog", program, [&](Program& known) {
        if (!log)
            return HIPRTC_ERROR_INVALID_INPUT;
        std::memcpy(log, known.log.c_str(), known.log.size() + 1);
        return HIPRTC_SUCCESS;
    });
}

HIP_HOST_API hiprtcResult hiprtcGetCodeSize(hiprtcProgram program, std::size_t* bytes) {
    return with_program("hiprtcGetCodeSize", program, [&](Program& known) {
        if (!bytes)
            return HIPRTC_ERROR_INVALID_INPUT;
        *bytes = known.code.size();
        return known.code.empty() ? HIPRTC_ERROR_INVALID_PROGRAM : HIPRTC_SUCCESS;
    });
}

HIP_HOST_API hiprtcResult hiprtcGetCode(hiprtcProgram program, char* code) {
    return with_program("hiprtcGetCode", program, [&](Program& known) {
        if (!code)
            return HIPRTC_ERROR_INVALID_INPUT;
        std::memcpy(code, known.code.data(), known.code.size());
        return known.code.empty() ? HIPRTC_ERROR_INVALID_PROGRAM : HIPRTC_SUCCESS;
    });
}
