# SPDX-License-Identifier: Apache-2.0
# The pages as a site, by Documenter. The tests run their code without it: test/pages.jl.
#
#     julia --project=julia/docs -e 'using Pkg; Pkg.develop(path = "julia"); Pkg.instantiate(); include("julia/docs/make.jl")'

using Documenter, Outrigger

makedocs(sitename = "Outrigger", modules = [Outrigger], checkdocs = :exports, format = Documenter.HTML(prettyurls = false),
         pages = ["Start" => "index.md", "Wrong use" => "wrong_use.md", "Functions" => "functions.md"])
